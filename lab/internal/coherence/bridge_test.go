package coherence_test

import (
	"context"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

func bridged(t testing.TB, name string) *profile.MemorySystem {
	t.Helper()
	return must.Get(profile.Bridges.Load(name))(t)
}

func meet(t testing.TB, s *profile.MemorySystem, p coherence.Program, d coherence.Direction) *coherence.Outcome {
	t.Helper()
	return must.Get(coherence.AtBridge(context.Background(), coherence.Contest{System: s, Program: p, DMA: d, Bytes: 8192}))(t)
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*want {
		t.Errorf("%s: %.2f, by hand %.2f", what, got, want)
	}
}

// TestBridgeByHand adds the cycles up.
func TestBridgeByHand(t *testing.T) {
	const cycle = 1.0 / 33 // us, of PCI
	cia, natoma := bridged(t, "alcor-cia"), bridged(t, "natoma")
	// Idle, address, device selection, 8 data.
	near(t, "posted stores of 32 bytes", meet(t, cia, coherence.PIOWrite, coherence.NoDMA).Processor.Alone, 32/(11*cycle), 0.001)
	// The same for each word.
	near(t, "stores of 4 bytes", meet(t, natoma, coherence.PIOWrite, coherence.NoDMA).Processor.Alone, 4/(4*cycle), 0.001)
	// A read turns the bus around, and the way of the load ends in the cycle after its 270 ns.
	near(t, "loads of 32 bytes", meet(t, cia, coherence.PIORead, coherence.NoDMA).Processor.Alone, 32/(22*cycle), 0.001)
	// One burst, and what begins it.
	near(t, "8 KiB by DMA", meet(t, natoma, coherence.NoProgram, coherence.SendDMA).TransferAlone.Microseconds(), 2048*cycle+4.17, 0.01)
	// A block of a copy is read, owned, and the one that must go for it written back: 10 cycles each.
	// In between 8 loads and 8 stores hit.
	alone := meet(t, natoma, coherence.BlockCopy, coherence.NoDMA).Processor.Alone
	if low, high := 32/(30/66.0+0.3), 32/(30/66.0); alone < low || alone > high {
		t.Errorf("a copy: %.1f MB/s, by hand %.1f to %.1f", alone, low, high)
	}
}

// TestBurstsOfLoads: words of one piece go together in the paper's order, too.
func TestBurstsOfLoads(t *testing.T) {
	s := *bridged(t, "alcor-cia")
	for _, merge := range []int{8, 16, 32} {
		b := *s.Bridge
		b.Merge, s.Bridge = merge, &b
		want := merge
		if merge == 16 {
			want = 8 // 0-3-1-2 leaves the piece after each word but 3-1 and 1-2
		}
		should.Be(t, meet(t, &s, coherence.PIORead, coherence.NoDMA).Burst, want, "pieces of %d bytes: bursts", merge)
		should.Be(t, meet(t, &s, coherence.PIOWrite, coherence.NoDMA).Burst, merge, "pieces bytes: stores")
	}
}

// TestWhoWins: the bridge's rule decides about copies; in turn neither starves.
func TestWhoWins(t *testing.T) {
	less := map[profile.First][2]float64{}
	for _, first := range []profile.First{profile.ProcessorFirst, profile.DMAFirst, profile.InTurn} {
		s := *bridged(t, "natoma")
		b := *s.Bridge
		b.First, s.Bridge = first, &b
		r := meet(t, &s, coherence.BlockCopy, coherence.SendDMA)
		if r.Processor.Together <= 0 || r.DMA.Together <= 0 || r.Starved {
			t.Errorf("%s first: %+v", first, r)
		}
		less[first] = [2]float64{r.Processor.Less, r.DMA.Less}
	}
	p, d, turns := less[profile.ProcessorFirst], less[profile.DMAFirst], less[profile.InTurn]
	if !(p[0] < turns[0] && turns[0] <= d[0] && p[1] > turns[1] && turns[1] >= d[1]) {
		t.Errorf("what the processor and DMA lose: processor first %v, in turn %v, DMA first %v", p, turns, d)
	}
	if p[1] < 60 || d[1] > 20 {
		t.Errorf("DMA loses %v %% when the processor goes first, %v %% when it does itself", p[1], d[1])
	}
}

// TestStarvation: where DMA goes first and memory is slower than PCI, the processor gets nothing,
// and the run ends.
func TestStarvation(t *testing.T) {
	s := *bridged(t, "alcor-cia")
	b := *s.Bridge
	b.Start, s.Bridge, s.Memory = 0, &b, profile.Micros(1)
	r := meet(t, &s, coherence.BlockCopy, coherence.SendDMA)
	if !r.Starved || r.Processor.Together != 0 || r.Processor.Less != 100 || r.DMA.Less > 5 {
		t.Errorf("%+v", r)
	}
}

// TestContestProperties: on any bridge nobody is faster beside another than alone, PCI carries no
// more than it can, and bytes of DMA are counted once.
func TestContestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
		s := &profile.MemorySystem{Name: "random", Processor: profile.Processor{Cycle: profile.Time(count("cycle", 1000, 10_000)), Word: 8, Work: count("work", 0, 5)},
			L1: profile.Cache{Size: 1 << 10, Line: 32, Ways: 1, Latency: 1}, L2: profile.Cache{Size: 8 << 10, Line: 64, Ways: 2, Latency: 4},
			Memory: profile.Time(count("memory", 0, 200_000)),
			Bus:    &profile.SystemBus{Cycle: profile.Time(count("bus", 5000, 40_000)), Width: 8, Arbitration: count("arbitration", 0, 2), Address: count("address", 1, 3)},
			NIC:    profile.Interface{Block: 32},
			Bridge: &profile.Bridge{PCI: profile.SystemBus{Cycle: profile.Time(count("pci", 10_000, 40_000)), Width: 4, Arbitration: count("idle", 0, 2), Address: count("select", 1, 3)},
				Wait: count("wait", 0, 4), First: rapid.SampledFrom([]profile.First{profile.ProcessorFirst, profile.DMAFirst, profile.InTurn}).Draw(t, "first"),
				Queue: count("queue", 1, 8), Merge: rapid.SampledFrom([]int{8, 16, 32}).Draw(t, "merge"), Posted: count("posted", 1, 8),
				Load: profile.Time(count("load", 0, 500_000)), Prefetch: count("prefetch", 1, 8), Burst: count("burst", 32, 1024), Start: profile.Time(count("start", 0, 5_000_000))}}
		o := coherence.Contest{System: s, Program: rapid.SampledFrom(coherence.Programs).Draw(t, "program"),
			DMA: rapid.SampledFrom(coherence.Directions[1:]).Draw(t, "dma"), Bytes: count("bytes", 1, 9000)}
		r := must.Get(coherence.AtBridge(context.Background(), o))(t)
		const slack = 1.1 // the measured time begins and ends within a transfer
		if p := r.Processor; p.Together > p.Alone*slack || p.Together < 0 || (p.Together == 0) != (r.Starved || o.Program == coherence.NoProgram) {
			t.Fatalf("processor %+v, starved %v", p, r.Starved)
		}
		peak := s.Bridge.PCI.Peak()
		if d := r.DMA; d.Together > d.Alone*slack+1 || d.Alone > peak*slack || d.Alone <= 0 {
			t.Fatalf("DMA %+v, PCI carries %v", d, peak)
		}
		if pci := r.Processor.Together + r.DMA.Together; (o.Program == coherence.PIOWrite || o.Program == coherence.PIORead) && pci > peak*slack+1 {
			t.Fatalf("%v MB/s over PCI, which carries %v", pci, peak)
		}
		if r.Transfer != 0 && float64(r.Transfer) < float64(r.TransferAlone)/slack {
			t.Fatalf("a transfer takes %v beside the program and %v alone", r.Transfer, r.TransferAlone)
		}
	})
}
