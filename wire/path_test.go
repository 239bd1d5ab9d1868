package wire_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// known makes a switch whose port i has station i.
func known(t *testing.T, n int, o wire.SwitchOptions) []switchPort {
	t.Helper()
	p := newSwitch(t, n, o)
	for i := range p {
		must.OK(t, p[i].Claim(stationMAC(byte(i))))
	}
	return p
}

// begin shows the first bytes of a frame, and returns where the rest of it goes.
func begin(t *testing.T, p switchPort, frame []byte, n int) []byte {
	t.Helper()
	b := p.Reserve(len(frame))
	must.Be(t, b == nil, false, "no room")
	copy(b[:n], frame)
	p.Publish(n)
	return b
}

// TestSwitchHoldsThePath: a frame leaves while it arrives, and holds its output alone.
func TestSwitchHoldsThePath(t *testing.T) {
	p := known(t, 4, wire.SwitchOptions{})
	long, short := frameOf(stationMAC(2), stationMAC(0), 1000), frameOf(stationMAC(2), stationMAC(1), 50)
	rest := begin(t, p[0], long, 100)
	f := p[2].Receive()
	must.Hold(t, len(f) == len(long) && bytes.Equal(f[:100], long[:100]), "%d bytes at the output", len(f))
	wantArrived(t, p[2], 100, false)
	should.Be(t, p[3].Receive() != nil || p[1].Receive() != nil, false, "a frame for port 2 at another port")
	must.Be(t, send(p[1], short), true, "no room for a frame that waits")
	should.Be(t, !send(p[3], frameOf(stationMAC(1), stationMAC(3), 10)) || receive(p[1]) == nil, false, "another path is held, too")
	if g := p[2].Receive(); &g[0] != &f[0] {
		t.Error("a frame passes in the middle of another")
	}
	copy(rest[100:], long[100:])
	p[0].Commit()
	wantArrived(t, p[2], len(long), false)
	should.Same(t, f, long, "the frame is damaged")
	p[2].Release()
	should.Same(t, receive(p[2]), short, "bytes after it")
	if s := p[2].Stats(); s != (wire.SwitchStats{CutThrough: 1, Waited: 1}) || wire.Broke(p[2]) != nil {
		t.Errorf("%+v, %v", s, wire.Broke(p[2]))
	}
}

// TestSwitchIsFair: of senders that always have a frame none gets a second turn before the others
// had theirs, in parts or whole.
func TestSwitchIsFair(t *testing.T) {
	const senders, rounds = 3, 200
	p := known(t, senders+1, wire.SwitchOptions{})
	frame := func(i int) []byte { return frameOf(stationMAC(senders), stationMAC(byte(i)), 300) }
	var open [senders][]byte
	turns := make([]int, senders)
	for round := range rounds {
		for i := range senders {
			switch {
			case open[i] != nil:
			case (round+i)%3 == 0:
				send(p[i], frame(i))
			default:
				open[i] = begin(t, p[i], frame(i), 64)
			}
		}
		f := p[senders].Receive()
		from := int(f[11])
		if open[from] != nil {
			copy(open[from][64:], frame(from)[64:])
			p[from].Commit()
			open[from] = nil
		}
		must.Same(t, f, frame(from), "frame %d is damaged", round)
		p[senders].Release()
		turns[from]++
		for i := range senders {
			must.Be(t, turns[i] < turns[from]-1, false, "after %d frames the senders had %v turns", round+1, turns)
		}
	}
}

// TestSwitchWatchdog: a sender that stalls in the middle of a frame loses the path, the error says
// which, and its next frame passes.
func TestSwitchWatchdog(t *testing.T) {
	p := known(t, 3, wire.SwitchOptions{Watchdog: time.Millisecond})
	long, short := frameOf(stationMAC(2), stationMAC(0), 1000), frameOf(stationMAC(2), stationMAC(1), 50)
	rest := begin(t, p[0], long, 200)
	must.Be(t, p[2].Receive() == nil, false, "the frame does not begin")
	must.Be(t, send(p[1], short), true, "no room")
	waittest.Until(t, "the watchdog", func() bool {
		n, aborted := p[2].Arrived()
		must.Be(t, n, 200, "bytes have arrived")
		return aborted
	})
	copy(rest[200:], long[200:])
	p[0].Publish(500) // too late
	wantArrived(t, p[2], 200, true)
	p[2].Release()
	must.Same(t, receive(p[2]), short, "bytes after the frame that stalled")
	p[0].Commit()
	must.Be(t, p[2].Receive() != nil, false, "a frame that stalled goes on")
	should.Same(t, carry(p[0], p[2], long), long, "the next frame does not pass")
	if e := wire.Broke(p[2]); e == nil || !errors.Is(e, wire.ErrStalled) || e.Station != stationMAC(0) || e.From != 0 ||
		e.To != 2 || e.Passed != 200 || e.Length != len(long) || !strings.Contains(e.Error(), stationMAC(0).String()) {
		t.Errorf("%v: %+v", e, e)
	}
	should.Be(t, p[2].Stats(), wire.SwitchStats{CutThrough: 1, Waited: 1, Stalled: 1})
}

// TestSwitchOutputDies: an output that is closed or unplugged while a path is held takes the frame
// with it, holds nobody up, and begins anew with whole frames.
func TestSwitchOutputDies(t *testing.T) {
	for name, c := range map[string]struct {
		die  func(p switchPort) error
		back bool
	}{
		"closed":    {switchPort.Close, false},
		"unplugged": {func(p switchPort) error { p.SetLink(false); return nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := known(t, 3, wire.SwitchOptions{MemoryOptions: wire.MemoryOptions{MTU: 2000, Ring: 1}})
			all := frameOf(datasheet.Broadcast, stationMAC(0), 1000)
			rest := begin(t, p[0], all, 100)
			p[1].Receive()
			await(t, p[2])
			must.OK(t, c.die(p[2]))
			copy(rest[100:], all[100:])
			p[0].Publish(500)
			p[0].Commit()
			if n, aborted := p[1].Arrived(); n != len(all) || aborted || !bytes.Equal(p[1].Receive(), all) {
				t.Errorf("the other output has %d bytes, aborted %v", n, aborted)
			}
			p[1].Release()
			if e := wire.Broke(p[0]); e == nil || !errors.Is(e, wire.ErrGone) || e.To != 2 || e.Station != stationMAC(0) {
				t.Errorf("%v", e)
			}
			should.Be(t, p[0].Stats().Lost, 1, "lost")
			for range 50 { // more than the ring of the dead output holds
				must.Be(t, !send(p[0], all) || receive(p[1]) == nil, false, "the dead output holds its senders up")
			}
			should.Be(t, p[2].Receive() != nil, false, "a frame at a port that is down")
			if c.back {
				p[2].SetLink(true)
				should.Same(t, carry(p[0], p[2], all), all, "the first frame after the plug is in again")
			}
		})
	}
}

// TestSwitchSenderDies: what a sender has begun when it is closed, unplugged or gives up breaks off.
func TestSwitchSenderDies(t *testing.T) {
	for name, die := range map[string]func(p switchPort){
		"closed":    func(p switchPort) { _ = p.Close() },
		"unplugged": func(p switchPort) { p.SetLink(false) },
		"gives up":  func(p switchPort) { p.Abort() },
	} {
		p := known(t, 3, wire.SwitchOptions{})
		f := frameOf(stationMAC(2), stationMAC(0), 1000)
		begin(t, p[0], f, 300)
		await(t, p[2])
		die(p[0])
		wantArrived(t, p[2], 300, true)
		p[0].Publish(400)
		p[0].Commit()
		wantArrived(t, p[2], 300, true)
		p[2].Release()
		should.Same(t, carry(p[1], p[2], f), f, "%s: the path is not free", name)
		should.Be(t, p[2].Stats().Broken, 1, "%s: broken", name)
		should.Be(t, p[2].Stats().Stalled, 0, "%s: stalled", name)
	}
}

// TestSwitchPartsConcurrently: no byte is wrong and no whole frame is lost when all ports send to one
// another in parts, give some frames up, and leave some unread.
func TestSwitchPartsConcurrently(t *testing.T) {
	const ports, frames = 4, 600
	p := known(t, ports, wire.SwitchOptions{MemoryOptions: wire.MemoryOptions{MTU: 3000, Ring: 1}})
	var wg sync.WaitGroup
	var whole, took [ports]atomic.Int64
	var done atomic.Int64
	sender := func(i int) {
		defer done.Add(1)
		random := rand.New(rand.NewPCG(uint64(i), 1))
		for n := 0; n < frames; {
			to := (i + 1 + random.IntN(ports-1)) % ports
			f := frameOf(stationMAC(byte(to)), stationMAC(byte(i)), 200+random.IntN(2000))
			b := p[i].Reserve(len(f))
			if b == nil {
				runtime.Gosched()
				continue
			}
			n++
			at := 0
			for end := 64; end < len(f); end += 1 + random.IntN(700) {
				copy(b[at:end], f[at:end])
				p[i].Publish(end)
				at = end
			}
			if random.IntN(10) == 0 {
				p[i].Abort()
				continue
			}
			whole[to].Add(1)
			copy(b[at:], f[at:])
			p[i].Commit()
			p[i].Flush()
		}
	}
	receiver := func(i int) {
		for {
			over := done.Load() == ports
			f := p[i].Receive()
			if f == nil {
				if over {
					return
				}
				runtime.Gosched()
				continue
			}
			for {
				n, aborted := p[i].Arrived()
				if n > len(f) {
					t.Errorf("%d of %d bytes", n, len(f))
					return
				}
				if aborted {
					break
				}
				if n < len(f) {
					runtime.Gosched()
					continue
				}
				if want := frameOf(stationMAC(byte(i)), stationMAC(f[11]), len(f)-datasheet.HeaderSize); !bytes.Equal(f, want) {
					t.Errorf("port %d: a frame of station %d is wrong", i, f[11])
					return
				}
				took[i].Add(1)
				break
			}
			p[i].Release()
		}
	}
	for i := range ports {
		wg.Go(func() { sender(i) })
		wg.Go(func() { receiver(i) })
	}
	wg.Wait()
	for i := range ports {
		should.Be(t, took[i].Load(), whole[i].Load(), "port %d has frames", i)
		should.Be(t, p[i].Stats().Stalled+p[i].Stats().Lost, 0, "port %d: frames stalled or lost", i)
	}
}
