package nic_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/nic"
)

var errNothing = errors.New("nothing works")

// wrongOpen counts the ports of scheme wrong that are open.
var wrongOpen atomic.Int32

func init() {
	ethernet.RegisterScheme("wrong", func(_ context.Context, a vfio.Address, c ethernet.Options) (ethernet.Port, error) {
		if a.Path == "not open" {
			return nil, &ethernet.Error{Op: "open", Device: a.String(), Err: errNothing}
		}
		wrongOpen.Add(1)
		return &wrong{what: a.Path, pool: c.Pool}, c.Pool.Hold()
	})
	ethernet.RegisterScheme("pci", func(_ context.Context, _ vfio.Address, c ethernet.Options) (ethernet.Port, error) {
		gone.Store(&removed{hostile{pool: c.Pool, cache: c.Pool.NewCache()}})
		return gone.Load(), c.Pool.Hold()
	})
	ethernet.RegisterScheme("hostile", func(_ context.Context, a vfio.Address, c ethernet.Options) (ethernet.Port, error) {
		script, err := hex.DecodeString(a.Path)
		if err != nil {
			return nil, err
		}
		return &hostile{pool: c.Pool, cache: c.Pool.NewCache(), script: script}, c.Pool.Hold()
	})
}

// gone is the PCI function that was opened last: all of them have been removed.
var gone atomic.Pointer[removed]

// removed is a port whose device is gone.
type removed struct{ hostile }

func (r *removed) Queue(int) ethernet.Queue { return r }

func (r *removed) Receive([]ethernet.Frame) (int, error) { return 0, ethernet.ErrDeviceGone }

func (r *removed) Restart(context.Context) error { return ethernet.ErrDeviceGone }

func (r *removed) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// wrong is a port that lacks something.
type wrong struct {
	ethernet.Port
	what string
	pool *ethernet.Pool
}

func (w *wrong) MAC() ethernet.MAC {
	if w.what == "no station" {
		return ethernet.MAC{1}
	}
	return ethernet.MAC{2, 1}
}

func (w *wrong) Queue(int) ethernet.Queue {
	if w.what == "no queue" {
		return nil
	}
	return &hostile{cache: w.pool.NewCache()}
}

func (w *wrong) Link() (ethernet.Link, error) { return ethernet.Link{}, errNothing }

func (w *wrong) Close() error {
	wrongOpen.Add(-1)
	w.pool.Release()
	return nil
}

// hostile is a port and its queue that answer whatever a script says.
type hostile struct {
	ethernet.Port // what a wire does not call
	pool          *ethernet.Pool
	cache         *ethernet.Cache

	mu     sync.Mutex
	script []byte
	at     int
	closed bool
}

// say returns the next byte of the script, which goes around.
func (h *hostile) say() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.script) == 0 {
		return 0
	}
	h.at++
	return int(h.script[h.at%len(h.script)])
}

func (h *hostile) err() error {
	switch h.say() % 16 {
	case 1:
		return errNothing
	case 2:
		return ethernet.ErrBadFrame
	case 3:
		return ethernet.ErrDeviceGone
	}
	return nil
}

func (h *hostile) Queue(int) ethernet.Queue          { return h }
func (h *hostile) Link() (ethernet.Link, error)      { return ethernet.Link{Up: true}, nil }
func (h *hostile) MAC() ethernet.MAC                 { return ethernet.MAC{2, 1} }
func (h *hostile) Stats() ethernet.Stats             { return ethernet.Stats{} }
func (h *hostile) Restart(ctx context.Context) error { return h.err() }
func (h *hostile) Cache() *ethernet.Cache            { return h.cache }
func (h *hostile) Unsent() (int, error)              { return h.say() - 128, h.err() }
func (h *hostile) Wait(ctx context.Context) error    { time.Sleep(time.Millisecond); return h.err() }

func (h *hostile) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		h.pool.Release()
	}
	return nil
}

// Receive gives frames that may be anywhere, and says that there are any number.
func (h *hostile) Receive(frames []ethernet.Frame) (int, error) {
	n := h.say() % 8
	for i := range min(n, len(frames)) {
		frames[i] = ethernet.Frame{Buffer: uint32(h.say())<<(h.say()%24) | uint32(h.say()),
			Offset: uint16(h.say()<<8 | h.say()), Length: uint16(h.say()<<8 | h.say()), Flags: ethernet.Flags(h.say())}
		if h.say()%2 == 0 { // one that is good, from time to time
			frames[i].Offset, frames[i].Length = uint16(h.say()), uint16(h.say())
			frames[i].Buffer %= uint32(h.pool.Options().Buffers)
		}
	}
	if h.say()%32 == 0 {
		n = (h.say() - 128) * h.say()
	}
	return n, h.err()
}

// Send says that it has taken any number.
func (h *hostile) Send(frames []ethernet.Frame) (int, error) {
	n := len(frames)
	switch h.say() % 4 {
	case 0:
		n = 0
	case 1:
		n = (h.say() - 128) * h.say()
	}
	if h.say()%2 == 0 {
		h.cache.Free(frames[:max(0, min(n, len(frames)))])
	}
	return n, h.err()
}

// FuzzHostileNIC makes a port use a NIC that lies, gives no buffers back, or one twice, and
// fails at any moment. What the port returns can be read and written, and nothing stops.
func FuzzHostileNIC(f *testing.F) {
	f.Add([]byte("a NIC of honest looks"), []byte("rrcfrcfgggrcf"))
	f.Add([]byte{}, []byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Add([]byte{7, 255, 16, 2, 3, 128, 0, 1, 90}, []byte{4, 4, 4, 0, 1, 2, 4, 5, 0, 0, 0, 1, 1, 2, 2})
	f.Add([]byte{1}, []byte{0, 1, 2, 4, 5})
	f.Fuzz(func(t *testing.T, script, calls []byte) {
		p := must.Get(nic.New(t.Context(), nic.Options{Address: fmt.Sprintf("hostile:%x", script), Logger: quiet}))(t)
		p.SetWake(func() {})
		var in, out []byte
		for _, c := range calls[:min(len(calls), 4096)] {
			switch c % 8 {
			case 0, 1:
				if out = p.Reserve(int(c) * 7); out != nil && len(out) != int(c)*7 {
					t.Fatalf("%d bytes for %d", len(out), int(c)*7)
				}
				clear(out)
			case 2:
				p.Commit()
			case 3:
				p.Flush()
			case 4, 5:
				if in = p.Receive(); in != nil && len(in) < ethernet.HeaderSize {
					t.Fatalf("a frame of %d bytes", len(in))
				}
				clear(in)
			case 6:
				p.Release()
			case 7:
				p.Drained()
			}
		}
		should.OK(t, p.Close())
		p.Reserve(0)
		p.Receive()
		p.Stats()
	})
}
