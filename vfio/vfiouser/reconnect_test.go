package vfiouser_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/mmio"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// TestReconnect: the server dies and another takes its place. Reset makes the
// device work again, with the same mappings at the same addresses.
func TestReconnect(t *testing.T) {
	leaktest.Check(t)
	path := filepath.Join(t.TempDir(), "nic.sock")
	first := serveAt(t, path, vfiouser.ServerOptions{})
	d := first.open(t)
	mem, event := alloc(t, 2*page), newEvent(t)
	bar := must.Get(d.MapRegion(4, 0, page))(t)
	defer bar.Close()
	part := must.Get(d.MapRegion(2, page, page))(t)
	defer part.Close()
	bell := must.Get(bar.Register32(doorbell))(t)
	must.OK(t, errors.Join(d.MapDMA(mem, 0x100000, both), d.SetIRQs(vfio.IRQMSIX, 0, []int{event.FD()})))
	lost := d.Lost()
	first.stop()
	<-lost
	signalled(t, event) // so that nobody sleeps on
	copy(part.Bytes(), "into the void")

	ctx := context.Background()
	for name, call := range map[string]func() error{
		"read":    func() error { return d.ReadRegion(0, 0, make([]byte, 4)) },
		"write":   func() error { return d.WriteRegion(0, 0, make([]byte, 4)) },
		"irqs":    func() error { return d.SetIRQs(vfio.IRQMSIX, 0, []int{event.FD()}) },
		"disable": func() error { return d.DisableIRQs(vfio.IRQMSIX) },
		"map":     func() error { return d.MapDMA(alloc(t, page), 0x200000, both) },
		"reset":   func() error { return d.Reset(ctx) },
	} {
		var e *vfio.Error
		if err := call(); !errors.Is(err, vfio.ErrDeviceGone) || errors.Is(err, io.EOF) || !errors.As(err, &e) || e.Hint == "" { // io.EOF: of a peer
			t.Errorf("%s without a server: %v", name, err)
		}
	}
	should.Fail(t, d.Reset(ctx), os.ErrNotExist, "reset without a socket")

	second := serveAt(t, path, vfiouser.ServerOptions{})
	must.OK(t, d.Reset(ctx))
	select {
	case <-d.Lost():
		t.Fatal("lost again")
	default:
	}
	must.OK(t, d.SetIRQs(vfio.IRQMSIX, 0, []int{event.FD()}))
	must.OK(t, event.Drain())
	copy(mem.Bytes(), "over there")
	setCopy(t, d, 0x100000, 0x101000, page)
	sent := d.Stats().Messages.Total()
	mmio.ToDevice()
	mmio.Write32(bell, 1)
	signalled(t, event)
	should.Same(t, mem.Bytes()[:page], mem.Bytes()[page:], "the copy differs")
	copy(part.Bytes(), "new memory")
	should.Be(t, d.Stats().Messages.Total(), sent)
	var b [10]byte
	err := d.ReadRegion(2, page, b[:])
	should.Hold(t, err == nil && string(b[:]) == "new memory", "the device has %q, %v", b, err)
	// What is unmapped while there is no server is not mapped again.
	second.stop()
	<-d.Lost()
	should.OK(t, d.UnmapDMA(0x100000, 2*page))
	third := serveAt(t, path, vfiouser.ServerOptions{})
	must.OK(t, d.Reset(ctx))
	should.Be(t, third.Stats().Ranges, 0, "ranges")
}

// TestOtherDevice: what is found again is something else.
func TestOtherDevice(t *testing.T) {
	leaktest.Check(t)
	path := filepath.Join(t.TempDir(), "nic.sock")
	r := serveAt(t, path, vfiouser.ServerOptions{})
	d := r.open(t)
	bar := must.Get(d.MapRegion(4, 0, page))(t)
	defer bar.Close()
	r.stop()
	<-d.Lost()
	l := must.Get(vfiouser.Listen(path, 0o600))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var server sync.WaitGroup
	server.Go(func() {
		should.OK(t, vfiouser.Serve(ctx, l, smallCopier{newCopier(t)}, quiet))
	})
	defer server.Wait()
	defer cancel()
	should.Fail(t, d.Reset(ctx), vfiouser.ErrOtherDevice)
	bar.Bytes()[0] = 1
	should.Fail(t, d.ReadRegion(0, 0, make([]byte, 4)), vfio.ErrDeviceGone, "afterwards")
}

// smallCopier has fewer vectors.
type smallCopier struct{ *copier }

func (d smallCopier) IRQ(index int) (vfio.IRQInfo, error) {
	info, err := d.copier.IRQ(index)
	info.Count = min(info.Count, 8)
	return info, err
}

// TestCloseInReset: Close does not wait for a server that does not answer.
func TestCloseInReset(t *testing.T) {
	leaktest.Check(t)
	path := filepath.Join(t.TempDir(), "nic.sock")
	r := serveAt(t, path, vfiouser.ServerOptions{})
	d := must.Get(vfio.Open(context.Background(), "vfio-user:"+path+"?timeout=10m"))(t)
	r.stop()
	l := must.Get(vfiouser.Listen(path, 0o600))(t)
	defer l.Close()
	reset := make(chan error, 1)
	go func() { reset <- d.Reset(context.Background()) }()
	c := must.Get(l.Accept())(t)
	defer c.Close()
	must.Get(c.Read(make([]byte, 16)))(t)
	should.OK(t, d.Close())
	select {
	case err := <-reset:
		should.Fail(t, err, vfio.ErrClosed, "Reset")
	case <-time.After(timeout):
		t.Error("Reset does not end")
	}
}

// TestConcurrent uses a device from many goroutines while its server comes and
// goes.
func TestConcurrent(t *testing.T) {
	leaktest.Check(t)
	path := filepath.Join(t.TempDir(), "nic.sock")
	r := serveAt(t, path, vfiouser.ServerOptions{})
	d := r.open(t)
	stop := make(chan struct{})
	var users sync.WaitGroup
	use := func(f func(i uint64) error) {
		users.Go(func() {
			for i := uint64(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(i); err != nil && !errors.Is(err, vfio.ErrDeviceGone) {
					t.Error(err)
					return
				}
				if i%16 == 15 { // sixteen of these would take the whole processor
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for n := range uint64(4) {
		mem, event := alloc(t, page), newEvent(t)
		use(func(i uint64) error {
			var b [8]byte
			return errors.Join(d.WriteRegion(4, 64*n, []byte{byte(i)}), d.ReadRegion(0, regID, b[:4]))
		})
		use(func(uint64) error {
			if err := d.MapDMA(mem, 0x100000*(n+1), both); err != nil {
				return err
			}
			return d.UnmapDMA(0x100000*(n+1), page)
		})
		use(func(uint64) error {
			m, err := d.MapRegion(4, n*page, page)
			if err != nil {
				return err
			}
			m.Bytes()[100]++
			return m.Close()
		})
		use(func(uint64) error { return d.SetIRQs(vfio.IRQMSIX, int(n), []int{event.FD()}) })
	}
	for range 5 {
		time.Sleep(20 * time.Millisecond)
		should.OK(t, d.Reset(context.Background()))
		r.stop()
		r = serveAt(t, path, vfiouser.ServerOptions{})
		time.Sleep(5 * time.Millisecond)
		should.OK(t, d.Reset(context.Background()))
	}
	close(stop)
	users.Wait()
	should.OK(t, d.Close())
}
