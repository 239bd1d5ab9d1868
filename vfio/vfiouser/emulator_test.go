package vfiouser_test

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

var _ vfiouser.ServedDevice = (*emulator.Device)(nil)

// fleet puts n emulated NICs on one wire behind sockets.
func fleet(t *testing.T, n int) (paths []string, servers []*vfiouser.Server) {
	t.Helper()
	leaktest.Check(t)
	dir := t.TempDir()
	for i := range n {
		paths = append(paths, filepath.Join(dir, string(rune('a'+i))))
	}
	nics := must.Get(emulator.Fleet(t.Context(), "emu:", paths))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	for i, d := range nics {
		s := must.Get(vfiouser.NewServer(d, quiet))(t)
		l := must.Get(vfiouser.Listen(paths[i], 0o600))(t)
		servers = append(servers, s)
		serving.Go(func() {
			should.OK(t, s.Serve(ctx, l))
		})
	}
	t.Cleanup(func() {
		cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			serving.Wait()
			for _, d := range nics {
				should.OK(t, d.Close())
			}
		}()
		select {
		case <-ended:
		case <-time.After(timeout):
			t.Error("a server or a device does not end")
		}
	})
	return paths, servers
}

// rawHost is a hostile driver of an emulated NIC: its memory can be cut off.
type rawHost struct {
	*rawClient
	fd  int
	mem []byte
}

func newRawHost(t *testing.T, path string) *rawHost {
	t.Helper()
	h := &rawHost{rawClient: connect(t, &running{path: path}, true), fd: memfd(t, 2*page, 0)}
	h.mem = must.Get(unix.Mmap(h.fd, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() { _ = unix.Munmap(h.mem) })
	h.setUp()
	return h
}

// setUp maps the memory and brings up the admin queue in it.
func (h *rawHost) setUp() {
	h.t.Helper()
	h.ok(cmdRegionWrite, pack(uint64(vfio.ConfigCommand), vfio.RegionConfig, 2, uint16(vfio.CommandMemory|vfio.CommandBusMaster)))
	h.ok(cmdDMAMap, dmaMap(3, 0, 0x100000, 2*page), h.fd)
	for _, w := range [][2]uint32{
		{datasheet.RegSQBaseLow, 0x100000}, {datasheet.RegACQBaseLow, 0x101000}, {datasheet.RegSQLog2, 4}, {datasheet.RegACQLog2, 4},
		{datasheet.RegAdminVector, uint32(datasheet.NoVector)}, {datasheet.RegAdminControl, datasheet.AdminEnable},
	} {
		h.set(datasheet.AdminOffset+w[0], w[1])
	}
	must.Be(h.t, h.get(datasheet.AdminOffset+datasheet.RegAdminStatus), datasheet.AdminEnabled, "admin status")
}

func (h *rawHost) set(offset, v uint32) {
	h.t.Helper()
	h.ok(cmdRegionWrite, pack(uint64(offset), 0, 4, v))
}

func (h *rawHost) get(offset uint32) uint32 {
	h.t.Helper()
	return binary.LittleEndian.Uint32(h.ok(cmdRegionRead, pack(uint64(offset), 0, 4)).payload[16:])
}

func (h *rawHost) fatal() bool {
	h.t.Helper()
	return h.get(datasheet.HealthOffset+datasheet.RegStatus)&datasheet.DeviceFatal != 0
}

// TestEmulatorTruncation: host memory vanishes under the NIC, in the goroutine
// that serves registers and in the thread of the engine. The NIC stops with a
// fault, answers, and works again after a reset; its neighbour never noticed.
func TestEmulatorTruncation(t *testing.T) {
	for _, tt := range []struct {
		name string
		cut  func(h *rawHost)
	}{
		{"registers", func(h *rawHost) {
			must.OK(h.t, unix.Ftruncate(h.fd, 0))
			h.set(datasheet.AdminOffset+datasheet.RegSQProducer, 1)
		}},
		{"reply to a command", func(h *rawHost) {
			datasheet.CommandAt(h.mem).Opcode = datasheet.OpNop
			must.OK(h.t, unix.Ftruncate(h.fd, page))
			h.set(datasheet.AdminOffset+datasheet.RegSQProducer, 1)
		}},
		{"engine", func(h *rawHost) {
			cmd := datasheet.CommandAt(h.mem)
			cmd.Opcode, cmd.ID = datasheet.OpConnectWait, 7
			body := datasheet.Body[datasheet.ConnectWaitBody](cmd)
			body.TimeoutMS, body.Local.Len = 50, 4
			h.set(datasheet.AdminOffset+datasheet.RegSQProducer, 1)
			must.Be(h.t, h.get(datasheet.AdminOffset+datasheet.RegSQConsumer), 1, "commands are fetched")
			must.OK(h.t, unix.Ftruncate(h.fd, 0))
			waittest.Until(h.t, "the reply hits the hole", h.fatal)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			paths, _ := fleet(t, 2)
			neighbour := newRawHost(t, paths[1])
			h := newRawHost(t, paths[0])
			tt.cut(h)
			should.Hold(t, h.fatal(), "the device has no fault")
			// The same client can go on after a reset.
			h.ok(cmdReset, nil)
			h.ok(cmdDMAUnmap, dmaUnmap(2, 0, 0))
			waittest.Until(t, "the device is ready", func() bool {
				h.ok(cmdRegionWrite, pack(uint64(vfio.ConfigCommand), vfio.RegionConfig, 2, uint16(vfio.CommandMemory)))
				return h.get(datasheet.HealthOffset+datasheet.RegStatus)&datasheet.DeviceReady != 0
			})
			should.Hold(t, !h.fatal(), "a reset does not clear the fault")
			must.OK(t, unix.Ftruncate(h.fd, 2*page))
			h.setUp()
			tt.cut(h) // and once more, and leave
			must.OK(t, h.c.Close())
			should.Hold(t, !newRawHost(t, paths[0]).fatal(), "the next client finds a fault")
			should.Hold(t, !neighbour.fatal(), "the neighbour has a fault")
		})
	}
}

// TestEmulatorDataPath: 10,000 messages over VIs, polled for, are no message of
// the protocol. Only the driver's look at the device's health is one.
func TestEmulatorDataPath(t *testing.T) {
	paths, servers := fleet(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 6*timeout)
	defer cancel()
	type end struct {
		nic  *via.NIC
		vi   *via.VI
		mem  *via.Memory
		send *via.Descriptor
		recv []*via.Descriptor
	}
	const depth = 8
	open := func(path string) *end {
		nic := must.Get(via.Open(ctx, "vfio-user:"+path, via.Options{Logger: quiet.Logger}))(t)
		t.Cleanup(func() { should.OK(t, nic.Close()) })
		e := &end{nic: nic}
		e.vi = must.Get(nic.CreateVI(ctx, via.VIAttributes{}, nil, nil))(t)
		e.mem = must.Get(nic.Alloc(ctx, (depth+1)*64, via.MemoryAttributes{}))(t)
		ds := must.Get(e.vi.NewDescriptors(ctx, depth+1, 1))(t)
		for i, d := range ds {
			must.OK(t, e.mem.AddTo(d, i*64, 64))
		}
		e.send, e.recv = ds[depth], ds[:depth]
		for _, d := range e.recv {
			must.OK(t, e.vi.PostRecv(d))
		}
		return e
	}
	a, b := open(paths[0]), open(paths[1])
	accepted := make(chan error, 1)
	go func() {
		request, err := b.nic.ConnectWait(ctx, "counting")
		if err == nil {
			_, err = request.Accept(ctx, b.vi)
		}
		accepted <- err
	}()
	to := via.Address{MAC: b.nic.Query().Address, Discriminator: "counting"}
	waittest.Until(t, "connection", func() bool {
		_, err := a.vi.ConnectRequest(ctx, to, "")
		return err == nil
	})
	must.OK(t, <-accepted)
	until := func(done func() (*via.Descriptor, error)) *via.Descriptor {
		for {
			d, err := done()
			if err == nil {
				return d
			}
			must.Hold(t, ctx.Err() == nil, "%v", err)
			runtime.Gosched() // the NICs are in this process
		}
	}
	stats := func() [2]vfiouser.ServerStats {
		return [2]vfiouser.ServerStats{servers[0].Stats(), servers[1].Stats()}
	}
	before := stats()
	waittest.Until(t, "what was set up has settled", func() bool {
		last := before
		time.Sleep(20 * time.Millisecond)
		before = stats()
		return cmp.Equal(last, before)
	})
	// The driver looks after an idle device once in 5 s, by messages.
	began := time.Now()
	for i := 0; i < 5000 && time.Since(began) < 20*time.Second; i++ { // each end waits for its turn where the machine is busy
		for _, x := range [][2]*end{{a, b}, {b, a}} {
			from, to := x[0], x[1]
			binary.LittleEndian.PutUint32(from.mem.Bytes()[depth*64:], uint32(i))
			must.OK(t, from.vi.PostSend(from.send))
			got := until(to.vi.RecvDone)
			must.Be(t, binary.LittleEndian.Uint32(to.mem.Bytes()[i%depth*64:]), uint32(i), "message %d arrives", i)
			until(from.vi.SendDone).Rearm()
			got.Rearm()
			must.OK(t, to.vi.PostRecv(got))
		}
	}
	after := stats()
	looks := uint64(10 * (1 + time.Since(began)/(5*time.Second)))
	for i := range after {
		const read = protocol.CommandRegionRead
		if after[i].Messages[read]-before[i].Messages[read] <= looks {
			after[i].Messages[read] = before[i].Messages[read]
		}
	}
	should.Be(t, cmp.Diff(before, after), "", "the data path has made messages")
}
