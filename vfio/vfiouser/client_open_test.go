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

	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
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
	if err := d.SetIRQs(vfio.IRQMSIX, 0, fds); err != nil {
		t.Fatal(err)
	}
	if n := d.Stats().Messages[protocol.CommandSetIRQs]; n != 5 { // 16 + 4, 2, 16 + 2
		t.Errorf("%d messages", n)
	}
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
	if c := connected(); c[20] || c[21] || !c[19] || !c[22] {
		t.Errorf("connected: %v", c)
	}
	// One is replaced, one is disconnected.
	e := newEvent(t)
	if err := d.SetIRQs(vfio.IRQMSIX, 3, []int{e.FD(), -1}); err != nil {
		t.Fatal(err)
	}
	raise(3)
	signalled(t, e)
	if c := connected(); c[4] {
		t.Error("vector 4 is still connected")
	}
	for _, tt := range []struct {
		index, start, n int
	}{{-1, 0, 1}, {5, 0, 1}, {vfio.IRQMSIX, 40, 1}, {vfio.IRQMSIX, 39, 2}, {vfio.IRQMSIX, -1, 1}, {vfio.IRQINTx, 0, 1}, {vfio.IRQMSIX, math.MaxInt, 2}} {
		if err := d.SetIRQs(tt.index, tt.start, slices.Repeat([]int{e.FD()}, tt.n)); !errors.Is(err, vfio.ErrNoSuchIRQ) {
			t.Errorf("index %d, %d vectors from %d on: %v", tt.index, tt.n, tt.start, err)
		}
	}
	if err := d.SetIRQs(vfio.IRQMSIX, 0, []int{int(os.Stdin.Fd())}); err == nil {
		t.Error("something that is no eventfd is accepted")
	}
	if err := d.SetIRQs(vfio.IRQMSIX, 0, []int{1 << 20}); err == nil {
		t.Error("a closed descriptor is accepted")
	}
	if c := connected(); !c[0] {
		t.Error("failing has disconnected vector 0")
	}
	if err := errors.Join(d.DisableIRQs(vfio.IRQMSIX), d.DisableIRQs(vfio.IRQINTx)); err != nil {
		t.Error(err)
	}
	if c := connected(); slices.Contains(c, true) {
		t.Errorf("connected: %v", c)
	}
	if err := d.DisableIRQs(5); !errors.Is(err, vfio.ErrNoSuchIRQ) {
		t.Errorf("disable index 5: %v", err)
	}
}

func TestReset(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	event := newEvent(t)
	if err := errors.Join(d.SetIRQs(vfio.IRQMSIX, 2, []int{event.FD()}), d.SetIRQs(vfio.IRQErr, 0, []int{event.FD()})); err != nil {
		t.Fatal(err)
	}
	mem := alloc(t, page)
	if err := d.MapDMA(mem, 0x10000, both); err != nil {
		t.Fatal(err)
	}
	write32(t, d, regLength, 99)
	if err := d.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	if v := read32(t, d, regLength); v != 0 {
		t.Errorf("a register reads %d after a reset", v)
	}
	r.dev.mu.Lock()
	if r.dev.irqs[vfio.IRQMSIX][2] >= 0 || r.dev.irqs[vfio.IRQErr][0] < 0 || len(r.dev.windows) != 1 {
		t.Errorf("MSI-X %d, error %d, %d windows", r.dev.irqs[vfio.IRQMSIX][2], r.dev.irqs[vfio.IRQErr][0], len(r.dev.windows))
	}
	r.dev.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := d.Reset(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
}

func TestIOEventfd(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	before := d.Stats().Messages[protocol.CommandRegionWrite]
	for range 3 {
		write32(t, d, regKick, 12345) // fails if it is a message
	}
	if err := d.WriteRegion(0, regKick+4, []byte{7, 0}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "four kicks arrive", func() bool { return read32(t, d, regCopies) == 4 })
	if n := d.Stats().Messages[protocol.CommandRegionWrite]; n != before {
		t.Errorf("%d messages", n-before)
	}
	// Other values and other sizes are messages.
	if err := errors.Join(d.WriteRegion(0, regKick+4, []byte{8, 0}), d.WriteRegion(0, regKick+4, []byte{7})); err != nil {
		t.Error(err)
	}
	if err := d.WriteRegion(0, regKick, []byte{7}); err == nil {
		t.Error("a write of another size was no message")
	}
	if n := d.Stats().Messages[protocol.CommandRegionWrite]; n != before+3 {
		t.Errorf("%d messages, want 3", n-before)
	}
}

func TestClose(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	m, err := d.MapRegion(4, 0, page)
	if err != nil {
		t.Fatal(err)
	}
	mem, event := alloc(t, page), newEvent(t)
	if err := errors.Join(d.MapDMA(mem, 0x10000, both), d.SetIRQs(vfio.IRQMSIX, 0, []int{event.FD()})); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	m.Bytes()[0] = 1 // a mapping lasts until it is closed
	if err := m.Close(); err != nil {
		t.Error(err)
	}
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
		if !errors.Is(err, vfio.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	if d.Info().Regions != 9 {
		t.Error("Info is lost")
	}
	r.idle(t)
	if s := r.Stats(); s.Ranges != 0 || s.Files != 0 {
		t.Errorf("the server still has %d ranges, %d files", s.Ranges, s.Files)
	}
}

func TestOpenFails(t *testing.T) {
	checkLeaks(t)
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead.sock")
	deadSocket(t, dead)
	unanswered := filepath.Join(dir, "unanswered.sock")
	l, err := vfiouser.Listen(unanswered, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, packets := filepath.Join(dir, "file"), filepath.Join(dir, "packets.sock")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: packets, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
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
	if _, err := vfio.Open(ctx, "vfio-user:"+unanswered); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a deadline: %v", err)
	}
}
