package vfiouser_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// slowMemory is a device that takes its time to change mappings: until release.
type slowMemory struct {
	*copier
	release chan struct{}
	once    sync.Once
}

func (d *slowMemory) MapWindow(iova uint64, b []byte, flags vfio.DMAFlags) error {
	<-d.release
	return d.copier.MapWindow(iova, b, flags)
}

func (d *slowMemory) UnmapWindows(first, last uint64) error {
	<-d.release
	return d.copier.UnmapWindows(first, last)
}

func (d *slowMemory) goOn() { d.once.Do(func() { close(d.release) }) }

// TestReadsOvertakeMappings: what a device is, and what its regions read, is told while it
// takes its time to change mappings. What changes the device waits for its turn.
func TestReadsOvertakeMappings(t *testing.T) {
	leaktest.Check(t)
	d := &slowMemory{copier: newCopier(t), release: make(chan struct{})}
	path := filepath.Join(t.TempDir(), "nic.sock")
	l := must.Get(vfiouser.Listen(path, 0o600))(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- vfiouser.Serve(ctx, l, d, quiet) }()
	t.Cleanup(func() {
		d.goOn()
		cancel()
		should.OK(t, <-served)
	})
	x := connect(t, &running{path: path}, true)
	mem := memfd(t, 4*page, 0)
	const mapped, written = 0x100, 0x200 // numbers of messages
	x.send(mapped, cmdDMAMap, 0, dmaMap(3, 0, 0x10000, page), mem)
	x.send(mapped+1, cmdDMAMap, 0, dmaMap(3, page, 0x20000, page), mem)
	x.send(mapped+2, cmdDMAUnmap, 0, dmaUnmap(0, 0x10000, page))
	x.ok(cmdRegionRead, pack(uint64(0x3d), vfio.RegionConfig, 1))
	x.ok(cmdRegionRead, pack(uint64(regID), 0, 4))
	x.ok(cmdGetInfo, pack(16, 0, 0, 0))
	x.ok(cmdGetRegionInfo, pack(32, 0, vfio.RegionConfig, 0, uint64(0), uint64(0)))
	x.ok(cmdGetIRQInfo, pack(16, 0, vfio.IRQMSIX, 0))
	// A doorbell may need what was mapped before: it is the last.
	x.send(written, cmdRegionWrite, 0, pack(uint64(regSource), 0, 8, uint64(0x20000)))
	d.goOn()
	for _, want := range []uint16{mapped, mapped + 1, mapped + 2, written} {
		a, err := x.receive()
		must.Hold(t, err == nil && a.id == want && a.flags == flagReply, "%v, %v; want message %#x", a, err, want)
	}
	x.alive()
}
