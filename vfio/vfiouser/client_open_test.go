package vfiouser_test

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

func TestInterrupts(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	var events []*vfio.Eventfd
	var fds []int
	for i := range 40 { // more than one message takes
		e := newEvent(t)
		events = append(events, e)
		if i == 20 || i == 21 {
			fds = append(fds, -1)
			continue
		}
		fds = append(fds, e.FD())
	}
	must.OK(t, d.SetIRQs(vfio.IRQMSIX, 0, fds))
	should.Be(t, d.Stats().Messages[protocol.CommandSetIRQs], 5, "messages") // 16 + 4, 2, 16 + 2
	raise := func(vector int) {
		r.dev.mu.Lock()
		defer r.dev.mu.Unlock()
		r.dev.raise(vfio.IRQMSIX, vector)
	}
	connected := func() []bool {
		r.dev.mu.Lock()
		defer r.dev.mu.Unlock()
		var c []bool
		for _, fd := range r.dev.irqs[vfio.IRQMSIX] {
			c = append(c, fd >= 0)
		}
		return c
	}
	for i := range 40 {
		if i == 20 || i == 21 {
			continue
		}
		raise(i)
		signalled(t, events[i])
	}
	c := connected()
	should.Hold(t, !c[20] && !c[21] && c[19] && c[22], "connected: %v", c)
	// One is replaced, one is disconnected.
	e := newEvent(t)
	must.OK(t, d.SetIRQs(vfio.IRQMSIX, 3, []int{e.FD(), -1}))
	raise(3)
	signalled(t, e)
	c = connected()
	should.Hold(t, !c[4], "vector 4 is still connected")
	for _, tt := range []struct {
		index, start, n int
	}{{-1, 0, 1}, {5, 0, 1}, {vfio.IRQMSIX, 40, 1}, {vfio.IRQMSIX, 39, 2}, {vfio.IRQMSIX, -1, 1}, {vfio.IRQINTx, 0, 1}, {vfio.IRQMSIX, math.MaxInt, 2}} {
		err := d.SetIRQs(tt.index, tt.start, slices.Repeat([]int{e.FD()}, tt.n))
		should.Hold(t, errors.Is(err, vfio.ErrNoSuchIRQ), "index %d, %d vectors from %d on: %v", tt.index, tt.n, tt.start, err)
	}
	err := d.SetIRQs(vfio.IRQMSIX, 0, []int{int(os.Stdin.Fd())})
	should.Hold(t, err != nil, "something that is no eventfd is accepted")
	err = d.SetIRQs(vfio.IRQMSIX, 0, []int{1 << 20})
	should.Hold(t, err != nil, "a closed descriptor is accepted")
	c = connected()
	should.Hold(t, c[0], "failing has disconnected vector 0")
	should.OK(t, errors.Join(d.DisableIRQs(vfio.IRQMSIX), d.DisableIRQs(vfio.IRQINTx)))
	c = connected()
	should.Hold(t, !slices.Contains(c, true), "connected: %v", c)
	should.Fail(t, d.DisableIRQs(5), vfio.ErrNoSuchIRQ, "disable index 5")
}

func TestReset(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	event := newEvent(t)
	must.OK(t, errors.Join(d.SetIRQs(vfio.IRQMSIX, 2, []int{event.FD()}), d.SetIRQs(vfio.IRQErr, 0, []int{event.FD()})))
	mem := alloc(t, page)
	must.OK(t, d.MapDMA(mem, 0x10000, both))
	write32(t, d, regLength, 99)
	must.OK(t, d.Reset(context.Background()))
	should.Be(t, read32(t, d, regLength), 0, "a register reads after a reset")
	r.dev.mu.Lock()
	should.Hold(t, r.dev.irqs[vfio.IRQMSIX][2] < 0 && r.dev.irqs[vfio.IRQErr][0] >= 0 && len(r.dev.windows) == 1,
		"MSI-X %d, error %d, %d windows", r.dev.irqs[vfio.IRQMSIX][2], r.dev.irqs[vfio.IRQErr][0], len(r.dev.windows))
	r.dev.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	should.Fail(t, d.Reset(ctx), context.Canceled, "with a context that is over")
}

func TestClose(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	m := must.Get(d.MapRegion(4, 0, page))(t)
	mem, event := alloc(t, page), newEvent(t)
	must.OK(t, errors.Join(d.MapDMA(mem, 0x10000, both), d.SetIRQs(vfio.IRQMSIX, 0, []int{event.FD()})))
	must.OK(t, errors.Join(d.Close(), d.Close()))
	m.Bytes()[0] = 1 // a mapping lasts until it is closed
	should.OK(t, m.Close())
	ctx := context.Background()
	_, errRegion := d.Region(0)
	_, errIRQ := d.IRQ(0)
	_, errRanges := d.IOVARanges()
	_, errMap := d.MapRegion(4, 0, page)
	for name, err := range map[string]error{
		"Region": errRegion, "IRQ": errIRQ, "IOVARanges": errRanges, "MapRegion": errMap,
		"ReadRegion": d.ReadRegion(0, 0, make([]byte, 4)), "WriteRegion": d.WriteRegion(0, 0, make([]byte, 4)),
		"SetIRQs": d.SetIRQs(vfio.IRQMSIX, 0, []int{-1}), "DisableIRQs": d.DisableIRQs(vfio.IRQMSIX),
		"MapDMA": d.MapDMA(mem, 0x20000, both), "UnmapDMA": d.UnmapDMA(0x10000, page), "Reset": d.Reset(ctx),
	} {
		should.Fail(t, err, vfio.ErrClosed, "%s after Close", name)
	}
	should.Be(t, d.Info().Regions, 9, "Info is lost")
	r.idle(t)
	r.holds(t, 0, 0)
}

func TestOpenFails(t *testing.T) {
	leaktest.Check(t)
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead.sock")
	deadSocket(t, dead)
	unanswered := filepath.Join(dir, "unanswered.sock")
	l := must.Get(vfiouser.Listen(unanswered, 0o600))(t)
	defer l.Close()
	file, packets := filepath.Join(dir, "file"), filepath.Join(dir, "packets.sock")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	other := must.Get(net.ListenUnix("unixpacket", &net.UnixAddr{Name: packets, Net: "unixpacket"}))(t)
	defer other.Close()
	for _, tt := range []struct {
		address string
		want    error
		hint    string
	}{
		{"vfio-user:", vfio.ErrBadAddress, "vfio-user:/path"},
		{"vfio-user:" + dead + "?timout=1s", vfio.ErrBadAddress, ""},
		{"vfio-user:" + dead + "?timeout=1", vfio.ErrBadAddress, ""},
		{"vfio-user:" + dead + "?timeout=0s", vfio.ErrBadAddress, ""},
		{"vfio-user:" + dead + "?timeout=1h", vfio.ErrBadAddress, ""},
		{"vfio-user:" + dead + "?unsealed=yes", vfio.ErrBadAddress, ""},
		{"vfio-user:" + unanswered + "?timeout=20ms&unsealed=on", os.ErrDeadlineExceeded, ""},
		{"vfio-user:/" + strings.Repeat("x", 107), vfio.ErrBadAddress, "shorter"},
		{"vfio-user:" + filepath.Join(dir, "none.sock"), os.ErrNotExist, "start the server"},
		{"vfio-user:" + dead, nil, "no server listens"},
		{"vfio-user:" + file, nil, "no socket"},
		{"vfio-user:" + packets, nil, "another kind"},
		{"vfio-user:" + unanswered + "?timeout=20ms", os.ErrDeadlineExceeded, ""},
	} {
		d, err := vfio.Open(context.Background(), tt.address)
		var e *vfio.Error
		if d != nil || err == nil || tt.want != nil && !errors.Is(err, tt.want) || !errors.As(err, &e) || !strings.Contains(e.Hint, tt.hint) {
			t.Errorf("%s: %v", tt.address, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	should.Refuse(vfio.Open(ctx, "vfio-user:"+unanswered))(t, context.DeadlineExceeded, "with a deadline")
}

// deadSocket leaves a socket as a server does that has died.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	l.SetUnlinkOnClose(false)
	must.OK(t, l.Close())
}
