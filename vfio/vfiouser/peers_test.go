package vfiouser_test

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// withoutVGA is a copier that ends with its configuration space, as NICs do.
type withoutVGA struct{ *copier }

func (d withoutVGA) Info() vfio.Info {
	info := d.copier.Info()
	info.Regions = vfio.RegionConfig + 1
	return info
}

// TestVGARegion: Linux and libvfio-user have nine regions, of which the last is
// VGA, and clients may ask for each. Of a device with fewer it is empty.
func TestVGARegion(t *testing.T) {
	leaktest.Check(t)
	s := must.Get(vfiouser.NewServer(withoutVGA{newCopier(t)}, quiet))(t)
	here, there := socketPair(t)
	var served sync.WaitGroup
	served.Go(func() { s.ServeConn(context.Background(), here) })
	defer served.Wait()
	defer there.Close()
	x := &rawClient{t: t, c: there}
	x.ok(cmdVersion, pack(uint16(0), uint16(0), versionText))
	should.Same(t, x.ok(cmdGetInfo, pack(16, 0, 0, 0)).payload, pack(16, 3, 9, 5))
	x.region(8, 32, pack(32, 0, 8, 0, uint64(0), uint64(0)), 0)
	x.refuses(unix.EINVAL, cmdRegionRead, pack(uint64(0), 8, 4))
	x.refuses(unix.EINVAL, cmdRegionWrite, pack(uint64(0), 8, 4, 0))
	x.refuses(unix.EINVAL, cmdGetRegionInfo, pack(32, 0, 9, 0, uint64(0), uint64(0)))
	x.alive()
}

// TestServersWithoutVGA: a client takes servers with eight regions and with nine,
// also one after the other.
func TestServersWithoutVGA(t *testing.T) {
	for _, regions := range []uint32{8, 9} {
		f := must.Get(newFake(t, func(f *fakeServer) {
			f.answer = func(m protocol.Message) ([]byte, []int, unix.Errno, bool) {
				if m.Header.Command == protocol.CommandDeviceInfo {
					return protocol.DeviceInfo{Argsz: 16, Flags: protocol.DevicePCI, Regions: regions, IRQs: 5}.Append(nil), nil, 0, true
				}
				return f.right(m)
			}
		}))(t)
		should.Be(t, f.client.Info().Regions, int(regions), "regions, want %d", regions)
		should.Refuse(f.client.Region(int(regions)))(t, vfio.ErrNoSuchRegion, "region %d", regions)
	}
}

// TestMinorVersions: the lower one counts. QEMU has 0, libvfio-user 1 or more.
func TestMinorVersions(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	for theirs, want := range map[uint16]uint16{0: 0, 1: 1, 2: 1, 7: 1} {
		x := connect(t, r, false)
		a := x.ok(cmdVersion, pack(uint16(0), theirs))
		should.Hold(t, bytes.HasPrefix(a.payload, pack(uint16(0), want)), "to a client of version 0.%d: %x", theirs, a.payload[:4])
		x.leave(r)
	}
}
