package via_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/via"
)

// TestEndIsTold ends NICs of each back end while their programs do nothing, or wait
// where nothing takes longer: the handler is told once, and then every call fails.
func TestEndIsTold(t *testing.T) {
	pulled := func(o emulator.PairOptions) func(t *testing.T) (*via.NIC, func()) {
		return func(t *testing.T) (*via.NIC, func()) {
			a, b := must.Two(emulator.Pair(o))(t)
			t.Cleanup(func() { _ = b.Close() })
			return openDevice(t, a, via.Options{}), a.Remove
		}
	}
	for name, open := range map[string]func(t *testing.T) (nic *via.NIC, end func()){
		"inline": pulled(emulator.PairOptions{}), "thread": pulled(emulator.PairOptions{Threads: true}),
		"vfio-user, server killed": func(t *testing.T) (*via.NIC, func()) {
			names, child := serveProcess(t)
			nic, _ := openBoth(t, "vfio-user:"+names[0], "vfio-user:"+names[1], via.Options{})
			return nic, func() { _ = child.Kill() }
		},
		"vfio-user, device pulled": func(t *testing.T) (*via.NIC, func()) {
			d, address := serve(t)
			nic := must.Get(via.Open(conform.Context(t), address, via.Options{}))(t)
			t.Cleanup(func() { _ = nic.Close() })
			return nic, d.Remove
		},
	} {
		t.Run(name, func(t *testing.T) {
			nic, end := open(t)
			e := conform.NewEnd(t, nic, conform.Setup{})
			told, later := make(chan via.AsyncError, 8), make(chan via.AsyncError, 8)
			nic.OnError(func(a via.AsyncError) {
				if a.Code != via.AsyncLink {
					told <- a
				}
			})
			must.OK(t, e.VI.PostRecv(e.Prepare(t, e.Recv[0], 0, 100)))
			end()
			if name == "vfio-user, device pulled" {
				_, _ = e.VI.RecvWait(conform.Context(t))
			}
			hear := func(from chan via.AsyncError) {
				t.Helper()
				select {
				case a := <-from:
					if a.Code != via.AsyncCatastrophic || a.Resource != via.ResourceNIC || a.NIC != nic || a.VI != nil || a.CQ != nil {
						t.Errorf("told %+v", a)
					}
				case <-time.After(conform.Timeout):
					t.Fatal("not told")
				}
			}
			hear(told)
			_, err := e.VI.RecvWait(conform.Context(t))
			for what, err := range map[string]error{
				"wait": err, "send": e.VI.PostSend(e.Prepare(t, e.Send[0], 0, 10)), "receive": e.VI.PostRecv(e.Prepare(t, e.Recv[1], 0, 10)),
			} {
				if !errors.Is(err, via.ErrDevice) || !errors.Is(err, driver.ErrDeviceGone) {
					t.Errorf("%s: %v, want %v", what, err, driver.ErrDeviceGone)
				}
			}
			nic.OnError(func(a via.AsyncError) { later <- a })
			hear(later)
			_ = nic.Close() // a server that is gone takes nothing back
			should.Be(t, len(told)+len(later), 0, "told twice")
		})
	}
}

func openDevice(t *testing.T, device vfio.Device, opts via.Options) *via.NIC {
	t.Helper()
	nic := must.Get(via.OpenDevice(conform.Context(t), device, opts))(t)
	t.Cleanup(func() { _ = nic.Close() })
	return nic
}

// serve puts an emulated NIC behind a vfio-user socket.
func serve(t *testing.T) (d *emulator.Device, address string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "nic")
	nics := must.Get(emulator.Fleet(t.Context(), "emu:", []string{socket}))(t)
	l := must.Get(vfiouser.Listen(socket, 0o600))(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = vfiouser.Serve(ctx, l, nics[0], vfiouser.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
	}()
	t.Cleanup(func() {
		cancel()
		<-served
		_ = nics[0].Close()
	})
	return nics[0], "vfio-user:" + socket
}

// TestNothingLeaks opens, uses and closes NICs in several states, and counts
// file descriptors and shared mappings.
func TestNothingLeaks(t *testing.T) {
	use := func(closeFirst bool) {
		a, b := conform.OnMemory(t, "", via.Options{})
		p := conform.NewWorld(t, a, b)
		x, y := p.Connect(conform.Setup{})
		for _, e := range []*conform.End{x, y} {
			must.OK(t, errors.Join(e.VI.PostRecv(e.Recv[0]), e.VI.PostSend(e.Send[0])))
		}
		cq := must.Get(a.CreateCQ(conform.Context(t), 16))(t)
		if !closeFirst {
			should.OK(t, cq.Close(conform.Context(t)))
		}
		should.OK(t, errors.Join(a.Close(), b.Close()))
	}
	use(true) // what is opened once and for all
	fds, maps := leaktest.Files(t), leaktest.Mappings(t)
	for i := range 10 {
		use(i%2 == 0)
	}
	if f, m := leaktest.Files(t), leaktest.Mappings(t); f > fds || m > maps {
		t.Errorf("%d file descriptors and %d shared mappings, %d and %d before", f, m, fds, maps)
	}
}
