package agent

import (
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"pgregory.net/rapid"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/wire"
)

// These tests call the rounds of a NIC themselves: they count turns and bytes, and no time.

// station is a client, and the end of its wire that a program has.
type station struct {
	*client
	program *wire.SHM
}

type fatal interface {
	must.TB
	Fatalf(format string, args ...any)
}

// enter lets a client in whose program is the test.
func enter(t fatal, n *nic, number byte, g Grant) *station {
	t.Helper()
	first, second := must.Two(pair())(t)
	ours := must.Get(unixsocket.TakeConn(first, unix.SOCK_SEQPACKET))(t)
	theirs := must.Get(unixsocket.TakeConn(second, unix.SOCK_SEQPACKET))(t)
	type opened struct {
		*wire.SHM
		error
	}
	other := make(chan opened, 1)
	adopt := func(c *net.UnixConn, role wire.SHMRole) opened {
		p, err := wire.AdoptSHM(context.Background(), c, wire.SHMOptions{Role: role, MTU: n.mtu, Transferable: role == wire.SHMListen})
		return opened{p, err}
	}
	go func() { other <- adopt(theirs, wire.SHMConnect) }()
	mine := adopt(ours, wire.SHMListen)
	program := <-other
	must.Hold(t, mine.error == nil && program.error == nil, "%+v %+v", mine.error, program.error)
	s := &station{&client{nic: n, grant: &g, vis: maxVIs, who: &identity{}, mac: datasheet.MAC{2, 0, 0, 0, 0, number}, port: mine.SHM}, program.SHM}
	n.add(s.client)
	return s
}

// leave ends a client.
func (s *station) leave() {
	s.nic.remove(s.client)
	for _, p := range []*wire.SHM{s.port, s.program} {
		_ = p.Close()
		p.Reserve(0)
		p.Receive()
	}
}

// post makes the program send a frame of n bytes that is not Trapeze's, and reports whether there was room.
func (s *station) post(to, from datasheet.MAC, n int) bool {
	b := s.program.Reserve(n)
	if b == nil {
		return false
	}
	clear(b[:min(n, headSize)])
	copy(b, to[:])
	copy(b[6:], from[:])
	binary.BigEndian.PutUint16(b[12:], 0x88b6)
	s.program.Commit()
	s.program.Flush()
	return true
}

// take makes the program take what has arrived, and counts frames.
func (s *station) take() (frames int) {
	for wire.ReceiveWhole(s.program) != nil {
		s.program.Release()
		frames++
	}
	return frames
}

var (
	nowhere = datasheet.MAC{2, 0, 0, 0, 1, 1} // a station behind the port
	all     = datasheet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// TestTurns: of clients that always have frames, each gets its share of the bytes that pass, whatever the size
// of its frames and whether they are garbage. No two differ by more than a turn and a frame (Shreedhar and Varghese,
// theorem 3).
func TestTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNIC(NIC{Name: "n"})
		type flow struct {
			*station
			to, from datasheet.MAC
			size     int
			spent    int
		}
		var flows []*flow
		defer func() {
			for _, f := range flows {
				f.leave()
			}
		}()
		for i := range rapid.IntRange(2, 5).Draw(t, "clients") {
			f := &flow{station: enter(t, n, byte(i+1), Grant{Frames: true, Share: rapid.IntRange(1, 3).Draw(t, "share")})}
			f.size = rapid.IntRange(datasheet.EthernetHeaderSize, n.mtu).Draw(t, "size")
			f.to, f.from = nowhere, f.mac
			switch rapid.SampledFrom([]string{"sends", "forges", "is refused", "sends to the first"}).Draw(t, "kind") {
			case "forges":
				f.from = all
			case "is refused":
				f.grant.Frames = false
			case "sends to the first":
				f.to = datasheet.MAC{2, 0, 0, 0, 0, 1}
			}
			flows = append(flows, f)
		}
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			for _, f := range flows {
				for f.post(f.to, f.from, f.size) {
				}
			}
			before := make([]uint64, len(flows))
			for i, f := range flows {
				before[i] = f.frames.Load() + f.forged.Load() + f.refused.Load()
			}
			n.round(time.Time{})
			for i, f := range flows {
				f.spent += int(f.frames.Load()+f.forged.Load()+f.refused.Load()-before[i]) * (f.size + frameCost)
			}
			flows[0].take()
		}
		for _, f := range flows {
			for _, g := range flows {
				if d := f.spent/f.grant.Share - g.spent/g.grant.Share; d > quantum+2*(n.mtu+frameCost) {
					t.Fatalf("frames of %d bytes with share %d got %d, and of %d with share %d %d", f.size, f.grant.Share, f.spent, g.size, g.grant.Share, g.spent)
				}
			}
		}
	})
}

// TestFloodTakesNoTurn: what a client sends passes in the next round, and nothing of it is lost. Others flood
// it meanwhile with frames to all, forged ones and garbage.
func TestFloodTakesNoTurn(t *testing.T) {
	n := newNIC(NIC{Name: "n"})
	victim, peer := enter(t, n, 1, Grant{Frames: true, Share: 1}), enter(t, n, 2, Grant{Frames: true, Share: 1})
	defer victim.leave()
	defer peer.leave()
	var floods []*station
	for i, g := range []Grant{{Frames: true, Share: 1}, {Frames: true, Share: 1}, {Share: 1}, {Frames: true, Share: 1000}} {
		floods = append(floods, enter(t, n, byte(3+i), g))
		defer floods[i].leave()
	}
	const rounds = 500
	arrived, flooded := 0, uint64(0)
	for range rounds {
		for i, to := range []datasheet.MAC{all, nowhere, nowhere, victim.mac} {
			from := floods[i].mac
			if i == 1 {
				from = victim.mac
			}
			for floods[i].post(to, from, 64) {
			}
		}
		must.Hold(t, victim.post(peer.mac, victim.mac, 1000), "the victim has no room")
		before := peer.reached.Load()
		n.round(time.Time{})
		peer.take() // the flood's too: it has room for them
		victim.take()
		if victim.frames.Load() == uint64(arrived+1) && peer.reached.Load() > before {
			arrived++
		}
	}
	for _, f := range floods {
		flooded += f.frames.Load() + f.forged.Load() + f.refused.Load()
	}
	should.Hold(t, arrived == rounds && flooded >= 10*rounds, "%d of %d frames passed in their round, beside %d of the flood", arrived, rounds, flooded)
	if f := floods[1]; f.forged.Load() == 0 || f.frames.Load() != 0 {
		t.Errorf("%d forged frames, %d passed", f.forged.Load(), f.frames.Load())
	}
	if f := floods[2]; f.refused.Load() == 0 || f.frames.Load() != 0 {
		t.Errorf("%d frames refused, %d passed", f.refused.Load(), f.frames.Load())
	}
	// A frame to all is copied for each client, and costs its sender as much.
	toAll, most := floods[0].frames.Load(), uint64(rounds*quantum/(len(n.table.Load().list)*(64+frameCost))+1)
	should.Hold(t, toAll <= most+1, "%d frames to all, at most %d", toAll, most)
}

// TestFullPort: clients share a port by their turns, also if it has room for some frames a round only. Frames
// between clients do not wait for it.
func TestFullPort(t *testing.T) {
	near, far := must.Two(wire.NewMemory(wire.MemoryOptions{MTU: 2048, Ring: 1}))(t)
	defer near.Close()
	defer far.Close()
	n := newNIC(NIC{Name: "n"})
	n.mtu = near.MTU()
	n.port.Store(&uplink{near})
	shares := []int{1, 3, 1}
	var senders []*station
	for i, share := range shares {
		senders = append(senders, enter(t, n, byte(1+i), Grant{Frames: true, Share: share}))
		defer senders[i].leave()
	}
	local, peer := enter(t, n, 8, Grant{Frames: true, Share: 1}), enter(t, n, 9, Grant{Frames: true, Share: 1})
	defer local.leave()
	defer peer.leave()
	const size = 1000
	passed := map[datasheet.MAC]int{}
	for round := range 3000 {
		for _, s := range senders {
			for s.post(nowhere, s.mac, size) {
			}
		}
		must.Hold(t, local.post(peer.mac, local.mac, size), "no room for a frame to a client")
		n.round(time.Time{})
		must.Be(t, peer.take(), 1, "round %d: a frame between clients waits for the port", round)
		for range 2 {
			if f := far.Receive(); f != nil {
				passed[datasheet.MAC(f[6:])]++
				far.Release()
			}
		}
	}
	turn := quantum/(size+frameCost) + 1
	for i, s := range senders {
		for j, other := range senders {
			if d := passed[s.mac]/shares[i] - passed[other.mac]/shares[j]; d > 2*turn {
				t.Errorf("shares %v got %v", shares, passed)
			}
		}
	}
	sum := passed[senders[0].mac] + passed[senders[1].mac] + passed[senders[2].mac]
	should.Hold(t, sum >= 5000, "%d frames passed", sum)
}

// TestFullClient: clients that flood one that takes nothing do not keep others from it. What it has taken makes room
// for all again.
func TestFullClient(t *testing.T) {
	n := newNIC(NIC{Name: "n"})
	g := Grant{Frames: true, Share: 1}
	target, quiet := enter(t, n, 1, g), enter(t, n, 2, g)
	defer target.leave()
	defer quiet.leave()
	var floods []*station
	for i := range 3 {
		floods = append(floods, enter(t, n, byte(3+i), g))
		defer floods[i].leave()
	}
	rapid.Check(t, func(t *rapid.T) {
		count, size := rapid.IntRange(1, len(floods)).Draw(t, "floods"), rapid.IntRange(64, 4000).Draw(t, "size")
		for range rapid.IntRange(1, 200).Draw(t, "rounds") {
			for _, f := range floods[:count] {
				for f.post(target.mac, f.mac, size) {
				}
			}
			n.round(time.Time{})
		}
		for range 3 { // what is quiet has little there
			before := target.reached.Load()
			must.Hold(t, quiet.post(target.mac, quiet.mac, 1000), "the quiet client has no room")
			n.round(time.Time{})
			must.Hold(t, target.reached.Load() != before, "a frame of the quiet client is lost beside %d floods", count)
		}
		got := target.take()
		must.Hold(t, uint64(got) >= 3, "%d frames", got)
		for busy := true; busy; target.take() { // what the floods had no turn for
			busy, _ = n.round(time.Time{})
		}
		for _, f := range append(floods, quiet) {
			for range 3 {
				f.post(target.mac, f.mac, size)
			}
			n.round(time.Time{})
			must.Be(t, target.take(), 3, "of 3 frames into memory that is free")
		}
	})
}

// TestRate: what a client sends in any time is what its rate allows, with one burst and one frame, however often the
// agent looks. What it may send is not lost to rounding.
func TestRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNIC(NIC{Name: "n"})
		rate := rapid.Int64Range(1<<20, 10<<30).Draw(t, "rate")
		c := enter(t, n, 1, Grant{Frames: true, Share: 1, Rate: rate})
		defer c.leave()
		size := rapid.IntRange(64, n.mtu).Draw(t, "size")
		step := time.Duration(rapid.Int64Range(1, int64(time.Millisecond)).Draw(t, "nanoseconds a round"))
		start := time.Unix(1, 0)
		now := start
		const rounds = 400
		for range rounds {
			for c.post(nowhere, c.mac, size) {
			}
			n.round(now)
			now = now.Add(step)
		}
		elapsed := now.Sub(start)
		allowed := float64(rate) * elapsed.Seconds()
		burst := max(float64(rate)*rateBurst.Seconds(), 2*float64(n.mtu))
		sent := float64(c.bytes.Load())
		most := allowed + burst + float64(size)
		must.Hold(t, sent <= 1.001*most, "%.0f bytes in %v at %d bytes per second, at most %.0f", sent, elapsed, rate, most)
		// What turns would let pass, if it is more, the rate has to keep.
		turns := rounds * float64(quantum-n.mtu-frameCost) * float64(size) / float64(size+frameCost)
		if turns > allowed+burst+float64(size) {
			least := allowed - float64(size)
			must.Hold(t, sent >= 0.999*least, "%.0f bytes in %v at %d bytes per second, at least %.0f", sent, elapsed, rate, least)
			must.Hold(t, c.slowed.Load() != 0, "it was never slowed")
		}
	})
}

// TestIdleEarnsNothing: a client that was idle has no more than one turn at once.
func TestIdleEarnsNothing(t *testing.T) {
	n := newNIC(NIC{Name: "n"})
	c := enter(t, n, 1, Grant{Frames: true, Share: 1})
	defer c.leave()
	for range 1000 {
		n.round(time.Time{})
	}
	for c.post(nowhere, c.mac, n.mtu) {
	}
	n.round(time.Time{})
	should.Be(t, c.frames.Load(), uint64(quantum/(n.mtu+frameCost)), "frames in a round")
}
