package vfiouser_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// TestBusy: one client at a time.
func TestBusy(t *testing.T) {
	leaktest.Parallel(t)
	r := serve(t, vfiouser.ServerOptions{})
	first := connect(t, r, true)
	second := connect(t, r, false)
	second.refuses(unix.EBUSY, cmdVersion, pack(uint16(0), uint16(0), versionText))
	should.Refuse(second.receive())(t, io.EOF, "then")
	_, err := vfiouser.Open(t.Context(), r.path, vfiouser.ClientOptions{})
	var e *vfio.Error
	should.Hold(t, errors.Is(err, unix.EBUSY) && errors.As(err, &e) && e.Hint != "", "Open: %v", err)
	first.alive()
	first.leave(r)
	connect(t, r, true).alive()
	s := r.Stats()
	should.Hold(t, s.Refused == 2, "%d refused", s.Refused)
}

// TestCrowd: a client that waits gets its turn; not all the world can wait.
func TestCrowd(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{BusyTimeout: timeout})
	first := connect(t, r, true)
	opened := make(chan error, 1)
	go func() {
		d, err := vfiouser.Open(t.Context(), r.path, vfiouser.ClientOptions{Timeout: timeout})
		if err == nil {
			err = d.Close()
		}
		opened <- err
	}()
	var crowd []*rawClient
	for range 40 {
		crowd = append(crowd, connect(t, r, false))
	}
	waittest.Until(t, "most are sent away", func() bool { return r.Stats().Refused >= 20 })
	first.alive()
	for _, x := range crowd {
		must.OK(t, x.c.Close())
	}
	must.OK(t, first.c.Close())
	select {
	case err := <-opened:
		// If the crowd was there first, it was sent away.
		should.Hold(t, err == nil || errors.Is(err, vfio.ErrDeviceGone), "%v", err)
	case <-time.After(timeout):
		t.Error("the second client does not get its turn")
	}
}

// TestIdleClient: a client that sends nothing, or does not read, does not keep the
// device.
func TestIdleClient(t *testing.T) {
	leaktest.Parallel(t)
	const limit = time.Second // in which a client that greets is served, on a busy machine too
	r := serve(t, vfiouser.ServerOptions{ReplyTimeout: limit})
	x := connect(t, r, false)
	should.Refuse(x.receive())(t, io.EOF)
	r.idle(t)
	x = connect(t, r, true)
	time.Sleep(limit + limit/10)
	x.alive() // later it may send nothing
	read := append(header(1, cmdRegionRead, 32, 0), pack(uint64(0), 4, 4*page)...)
	for {
		must.OK(t, x.c.SetWriteDeadline(time.Now().Add(timeout)))
		if _, err := x.c.Write(read); errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	x.leave(r)
}

// TestNextClient finds a device that is as new, whatever the last one keeps.
func TestNextClient(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	x := connect(t, r, true)
	a := x.ok(cmdGetRegionInfo, pack(32, 0, 4, 0, uint64(0), uint64(0)))
	old := must.Get(unix.Mmap(a.fds[0], 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	defer unix.Munmap(old)
	_, err := unix.FcntlInt(uintptr(a.fds[0]), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)
	should.Hold(t, errors.Is(err, unix.EPERM), "the client can seal the region: %v", err)
	should.Fail(t, unix.Ftruncate(a.fds[0], 0), unix.EPERM, "the client can truncate the region")
	copy(old, "secret")
	x.ok(cmdRegionWrite, pack(uint64(regLength), 0, 4, 77))
	x.ok(cmdSetIRQs, pack(20, 0x24, 2, 0, 1), eventfd(t, 0, 0))
	x.ok(cmdDMAMap, dmaMap(3, 0, 0x10000, page), memfd(t, page, 0))
	x.leave(r)

	x = connect(t, r, true)
	copy(old, "still here")
	should.Same(t, x.ok(cmdRegionRead, pack(uint64(0), 4, 10)).payload[16:], make([]byte, 10))
	should.Be(t, x.register(regLength), 0, "register reads")
	x.ok(cmdRegionWrite, pack(uint64(regSource), 0, 8, uint64(0x10000)))
	x.ok(cmdRegionWrite, pack(uint64(regTarget), 0, 8, uint64(0x10000)))
	x.ok(cmdRegionWrite, pack(uint64(regLength), 0, 4, 8))
	x.ok(cmdRegionWrite, pack(uint64(regStart), 0, 4, 1))
	should.Be(t, x.register(regFaults), 1, "faults: the last client's memory is still mapped")
	r.dev.mu.Lock()
	defer r.dev.mu.Unlock()
	should.Hold(t, r.dev.irqs[vfio.IRQMSIX][0] < 0, "the last client's interrupt is still connected")
}

// TestDeviceFails: one that cannot be made new is given to nobody.
func TestDeviceFails(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	x := connect(t, r, true)
	r.dev.unclean.Store(true)
	must.OK(t, x.c.Close())
	x = connect(t, r, false)
	x.refuses(unix.EIO, cmdVersion, pack(uint16(0), uint16(0), versionText))
	r.dev.unclean.Store(false)
	connect(t, r, true).alive()
}

// TestStop: a client that wants to know is told and may leave in order.
func TestStop(t *testing.T) {
	t.Run("told", func(t *testing.T) {
		r := serve(t, vfiouser.ServerOptions{ReleaseTimeout: timeout})
		d := r.open(t)
		request := newEvent(t)
		must.OK(t, d.SetIRQs(vfio.IRQReq, 0, []int{request.FD()}))
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			r.stop()
		}()
		signalled(t, request)
		read32(t, d, regID) // the device is still there
		should.OK(t, d.Close())
		<-stopped
	})
	t.Run("told and deaf", func(t *testing.T) {
		r := serve(t, vfiouser.ServerOptions{ReleaseTimeout: 20 * time.Millisecond})
		d := r.open(t)
		request := newEvent(t)
		must.OK(t, d.SetIRQs(vfio.IRQReq, 0, []int{request.FD()}))
		r.stop()
		<-d.Lost()
	})
	t.Run("not told", func(t *testing.T) {
		r := serve(t, vfiouser.ServerOptions{ReleaseTimeout: time.Hour})
		d := r.open(t)
		r.stop()
		<-d.Lost()
		should.Refuse(os.Stat(r.path))(t, os.ErrNotExist, "the socket is left")
	})
	t.Run("in the middle of a message", func(t *testing.T) {
		r := serve(t, vfiouser.ServerOptions{})
		x := connect(t, r, true)
		must.OK(t, x.write(header(1, cmdRegionWrite, 1000, 0)))
		r.stop()
	})
}

func TestNewServerRefuses(t *testing.T) {
	leaktest.Check(t)
	dev := &noDevice{newCopier(t)}
	should.Refuse(vfiouser.NewServer(dev, vfiouser.ServerOptions{}))(t, vfio.ErrNotSupported, "NewServer")
	l := must.Get(vfiouser.Listen(filepath.Join(t.TempDir(), "nic.sock"), 0o600))(t)
	should.Fail(t, vfiouser.Serve(t.Context(), l, dev, vfiouser.ServerOptions{}), vfio.ErrNotSupported, "Serve")
	should.Refuse(l.Accept())(t, net.ErrClosed, "the listener is open")
}

// noDevice is no PCI device: it has no configuration space.
type noDevice struct{ *copier }

func (noDevice) Info() vfio.Info { return vfio.Info{Regions: 7, IRQs: 5} }

// TestListenerFails: that is an error, and no client is left.
func TestListenerFails(t *testing.T) {
	leaktest.Check(t)
	dev := newCopier(t)
	l := must.Get(vfiouser.Listen(filepath.Join(t.TempDir(), "nic.sock"), 0o600))(t)
	done := make(chan error, 1)
	go func() { done <- vfiouser.Serve(t.Context(), l, dev, quiet) }()
	must.OK(t, l.Close())
	should.Fail(t, <-done, net.ErrClosed)
}

func TestStats(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	x := connect(t, r, true)
	x.alive()
	x.alive()
	x.ask(99, nil)
	want := fmt.Sprint(vfiouser.Messages{0: 1, protocol.CommandVersion: 1, protocol.CommandRegionRead: 2})
	if s := r.Stats(); fmt.Sprint(s.Messages) != want || s.Messages.Total() != 4 || s.Errors != 1 || s.Clients != 1 {
		t.Errorf("%+v, want messages %s", s, want)
	}
}
