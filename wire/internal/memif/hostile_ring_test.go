package memif_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// use makes a port do everything with its rings.
func use(p *memif.Port) {
	if f := p.Receive(); f != nil {
		p.Release()
	}
	if f := p.Reserve(100); f != nil {
		copy(f, pattern(1, 100))
		p.Commit()
	}
	p.Flush()
}

// servers are the ways in which a client's memory may be used: as it is, and
// with care because it can be cut off.
var servers = []struct {
	name    string
	flags   int // of memfd_create
	guarded bool
}{
	{"sealed", unix.MFD_ALLOW_SEALING, false},
	{"not sealed", 0, true},
}

// TestRawClientExchangesFrames: a client with rings of its own making.
func TestRawClientExchangesFrames(t *testing.T) {
	for _, v := range servers {
		t.Run(v.name, func(t *testing.T) {
			leaktest.Check(t)
			_, server, r := withRaw(t, v.flags)
			s := newSleeper(server, 300)
			for i := range 200 {
				n := 1 + i*13%1500 // in several buffers too
				f := pattern(i, n)
				copy(r.sends.Reserve(n), f)
				r.sends.Commit()
				if r.sends.Flush() {
					t.Log("it wants interrupts")
				}
				if i%2 == 0 {
					must.Same(t, receive(server), f, "frame %d: received bytes, want %d", i, n)
				} else if got := s.receive(); got != n {
					t.Fatalf("frame %d: received %d bytes, want %d", i, got, n)
				}
				send(server, f)
				must.Same(t, r.receives.Receive(), f, "frame %d: the client received bytes, want %d", i, n)
				r.receives.Release()
			}
			server.Receive()
			if st := server.Stats(); st.Guarded != v.guarded || st.PeerName != "raw" || st.PeerInterface != "raw0" || st.FramesReceived != 200 || st.FramesSent != 200 {
				t.Errorf("stats %+v", st)
			}
			server.SetWake(nil)
			r.close()
			waittest.Until(t, "the link goes down", func() bool { return !server.LinkUp() })
			use(server)
		})
	}
}

// poke writes 16 bits into a ring.
func (r *rawPeer) poke(c2s bool, at int, v uint16) {
	binary.LittleEndian.PutUint16(r.memory[int(r.layout.Offset(c2s, 0))+at:], v)
}

// scribble writes ones everywhere.
func (r *rawPeer) scribble() {
	for i := range r.memory {
		r.memory[i] = 0xff
	}
}

// TestRingViolations: what a client may write into rings ends the connection,
// and that only.
func TestRingViolations(t *testing.T) {
	const head, descriptor = 6, ring.HeaderSize
	for _, v := range servers {
		for name, poke := range map[string]func(r *rawPeer){
			"head of the ring to the server jumps": func(r *rawPeer) { r.poke(true, head, 1000) },
			"head of the ring to the client jumps": func(r *rawPeer) { r.poke(false, head, 1000) },
			"frame outside its region": func(r *rawPeer) {
				r.poke(true, descriptor+8, 0xffff)
				r.poke(true, descriptor+10, 0xffff)
				r.poke(true, head, 1)
			},
			"buffer in no region": func(r *rawPeer) { r.poke(false, descriptor+2, 1) },
			"everything is ones":  (*rawPeer).scribble,
		} {
			t.Run(fmt.Sprintf("%s, %s", name, v.name), func(t *testing.T) {
				leaktest.Check(t)
				o, server, r := withRaw(t, v.flags)
				poke(r)
				waittest.Until(t, "the link goes down", func() bool {
					use(server)
					return !server.LinkUp()
				})
				if reason := r.wantEnd(); reason == "" {
					t.Error("the client is not told why")
				}
				waittest.Until(t, "it is counted", func() bool { return violations(server.Stats()) == 1 })
				var violation *ring.Violation
				if err := server.Stats().Err; !errors.Is(err, memif.ErrViolation) || !errors.As(err, &violation) {
					t.Errorf("error %v", err)
				}
				stillWorks(t, server, o)
			})
		}
	}
}

// TestMemoryVanishes: a client cuts off its memory, at the worst times.
func TestMemoryVanishes(t *testing.T) {
	for name, use := range map[string]func(p *memif.Port){
		"while nobody does anything": func(*memif.Port) {},
		"before a frame is received": func(p *memif.Port) { p.Receive() },
		"before a frame is sent":     func(p *memif.Port) { send(p, pattern(1, 100)) },
		"in both directions":         use,
		"while somebody sleeps":      func(p *memif.Port) { p.SetWake(func() {}) },
	} {
		t.Run(name, func(t *testing.T) {
			leaktest.Check(t)
			o, server, r := withRaw(t, 0)
			send(server, pattern(0, 100))
			copy(r.sends.Reserve(300), pattern(1, 300))
			r.sends.Commit()
			r.sends.Flush()
			held := server.Receive()
			must.Same(t, held, pattern(1, 300), "received bytes")
			reserved := server.Reserve(50)
			must.OK(t, unix.Ftruncate(r.file, 0))
			// What was handed out before is ours.
			copy(reserved, held)
			should.Same(t, held, pattern(1, 300), "a frame that was received has changed")
			server.Commit()
			server.Release()
			for range 100 {
				use(server)
			}
			if name == "while nobody does anything" {
				r.close()
				waittest.Until(t, "the end", func() bool { return !server.LinkUp() })
			} else {
				waittest.Until(t, "it is counted", func() bool { use(server); return badMemory(server.Stats()) == 1 })
				should.Fail(t, server.Stats().Err, memif.ErrMemory, "error")
				r.wantEnd()
			}
			server.SetWake(nil)
			stillWorks(t, server, o)
		})
	}
}

// TestMemoryIsSealed: if it can be, a client's memory is made such that the
// client cannot cut it off.
func TestMemoryIsSealed(t *testing.T) {
	_, server, r := withRaw(t, unix.MFD_ALLOW_SEALING)
	should.Fail(t, unix.Ftruncate(r.file, 0), unix.EPERM, "truncating gives")
	use(server)
	should.Be(t, server.LinkUp(), true, "the link is down")
}

// TestMemoryVanishesEarly: between ADD_REGION and CONNECT.
func TestMemoryVanishesEarly(t *testing.T) {
	leaktest.Check(t)
	o := memif.Options{Socket: socketPath(t), Role: memif.Server}
	server := newPort(t, o)
	r := dialRaw(t, o.Socket)
	r.offered(0)
	must.OK(t, unix.Ftruncate(r.file, 0))
	r.send(protocol.Connect{}, -1)
	r.wantEnd()
	waittest.Until(t, "it is counted", func() bool { return badMemory(server.Stats()) == 1 })
	r.close()
	stillWorks(t, server, o)
}
