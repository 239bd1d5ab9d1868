package memif_test

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
)

// kinds are the connections for which everything must hold.
var kinds = []struct {
	name string
	a, b memif.Options
}{
	{"server to client", memif.Options{Role: memif.Server}, memif.Options{}},
	{"client to server", memif.Options{Role: memif.Client}, memif.Options{}},
	{"several rings", memif.Options{Role: memif.Server}, memif.Options{Queues: 3}},
	{"chains from a client", memif.Options{Role: memif.Client, Buffer: 128, Ring: 64, MTU: 4096}, memif.Options{MTU: 4096}},
	{"chains from a server", memif.Options{Role: memif.Server, MTU: 4096}, memif.Options{Buffer: 128, Ring: 64, MTU: 4096}},
	{"largest frames", memif.Options{Role: memif.Server, MTU: datasheet.MaxMTU}, memif.Options{MTU: datasheet.MaxMTU}},
	{"polling", memif.Options{Role: memif.Server, Polling: true}, memif.Options{Polling: true}},
	{"secret", memif.Options{Role: memif.Server, Secret: "open sesame", ID: 7}, memif.Options{Secret: "open sesame", ID: 7}},
}

// ends opens a connection of each kind, on a socket in the file system and on
// an abstract one in turn.
func ends(t *testing.T, each func(t *testing.T, a, b *memif.Port)) {
	for i, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			leaktest.Check(t)
			if i%2 == 1 {
				k.a.Socket = abstractSocket(t)
			}
			a, b := connected(t, k.a, k.b)
			each(t, a, b)
		})
	}
}

// TestFull: a full wire takes no more, and goes on when frames are taken.
func TestFull(t *testing.T) {
	ends(t, func(t *testing.T, a, b *memif.Port) {
		var sent, got int
		for range 3 {
			for send(a, pattern(sent, 64)) {
				sent++
			}
			should.Be(t, a.Reserve(64) != nil, false, "there is room in a full wire")
			for got < sent {
				must.Same(t, receive(b), pattern(got, 64), "frame %d of %d: bytes", got, sent)
				got++
			}
			if b.Receive() != nil { // an empty look gives the room back
				t.Error("a frame too many")
			}
		}
		should.Be(t, sent < 64, false, "room for %d frames", sent/3)
	})
}

func TestLinkDownLosesFrames(t *testing.T) {
	ends(t, func(t *testing.T, a, b *memif.Port) {
		f := pattern(4, 70)
		a.SetLink(false)
		should.Be(t, a.LinkUp(), false, "link is up with the plug out")
		should.Be(t, send(a, f), true, "a wire without plug holds its sender up")
		waittest.Until(t, "the peer sees it", func() bool { return !b.LinkUp() })
		a.SetLink(true)
		waittest.Until(t, "link up", func() bool { return a.LinkUp() && b.LinkUp() })
		g := pattern(5, 71)
		send(a, g)
		should.Same(t, receive(b), g, "received bytes, want those that were sent with the plug")
		if s := a.Stats(); s.Lost != 1 || s.Connections != 2 || s.Unplugs != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestTwoThreads has frames of all sizes cross in both directions while all
// ends run.
func TestTwoThreads(t *testing.T) {
	ends(t, func(t *testing.T, a, b *memif.Port) {
		frames := 2000
		if soak.Wanted() {
			frames = 10000
		}
		size := func(i int) int { return 8 + i*37%(min(a.MTU(), 5000)-8) }
		var failed atomic.Bool
		var all sync.WaitGroup
		for _, way := range [][2]*memif.Port{{a, b}, {b, a}} {
			all.Go(func() {
				for i := 0; i < frames && !failed.Load(); {
					q := way[0].Reserve(size(i))
					if q == nil {
						way[0].Flush()
						runtime.Gosched()
						continue
					}
					copy(q, pattern(i, len(q)))
					way[0].Commit()
					if i++; i%5 == 0 || i == frames {
						way[0].Flush()
					}
				}
			})
			all.Go(func() {
				for i := range frames {
					if f := receive(way[1]); !bytes.Equal(f, pattern(i, size(i))) {
						t.Errorf("frame %d is damaged: %d bytes", i, len(f))
						failed.Store(true)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

// TestIsAQueue compares a wire with a list of frames.
func TestIsAQueue(t *testing.T) {
	ends(t, func(t *testing.T, a, b *memif.Port) {
		number := 0
		rapid.Check(t, func(t *rapid.T) {
			var committed, visible [][]byte
			flush := func(*rapid.T) {
				a.Flush()
				visible, committed = append(visible, committed...), nil
			}
			take := func(t *rapid.T) {
				f := b.Receive()
				if len(visible) == 0 {
					must.Be(t, f != nil, false, "a frame that was not flushed")
					return
				}
				if f == nil || !bytes.Equal(f, visible[0]) || !bytes.Equal(b.Receive(), visible[0]) {
					t.Fatalf("received %d bytes, want %d, twice", len(f), len(visible[0]))
				}
				b.Release()
				b.Release() // without effect
				visible = visible[1:]
			}
			t.Repeat(map[string]func(*rapid.T){
				"commit": func(t *rapid.T) {
					number++
					f := pattern(number, rapid.IntRange(0, min(a.MTU(), 3000)).Draw(t, "size"))
					q := a.Reserve(len(f))
					if q == nil {
						must.Be(t, len(committed)+len(visible) == 0, false, "an empty wire has no room")
						return
					}
					copy(q, f)
					a.Commit()
					committed = append(committed, f)
				},
				"abandon": func(*rapid.T) { a.Reserve(number % 100) },
				"commit nothing": func(*rapid.T) {
					a.Reserve(-1)
					a.Commit()
				},
				"flush":   flush,
				"receive": take,
			})
			flush(t)
			for len(visible) > 0 {
				take(t)
			}
			b.Receive() // gives all room back
		})
	})
}

// TestStatsCount: what went through is counted at both ends.
func TestStatsCount(t *testing.T) {
	ends(t, func(t *testing.T, a, b *memif.Port) {
		for i := range 100 {
			send(a, pattern(i, 100))
			receive(b)
		}
		b.Receive()
		s, r := a.Stats(), b.Stats()
		if s.FramesSent != 100 || s.BytesSent != 10000 || r.FramesReceived != 100 || r.BytesReceived != 10000 {
			t.Errorf("sent %+v, received %+v", s, r)
		}
		if s.Err != nil && !errors.Is(s.Err, wire.ErrNotListening) { // a client that was there first
			t.Errorf("error %v", s.Err)
		}
		should.Hold(t, s.Up && !s.Guarded && s.Connections == 1 && s.PeerName == "trapeze" && s.PeerInterface == "trapeze", "stats %+v", s)
	})
}
