package coherence_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/conform"
	_ "github.com/trapeze-nic/trapeze/emulator" // live NICs
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/via"
)

func load(t testing.TB, name string) *profile.MemorySystem {
	t.Helper()
	return must.Get(profile.Systems.Load(name))(t)
}

func run(t testing.TB, o coherence.Options) *coherence.Result {
	t.Helper()
	return must.Get(coherence.Run(context.Background(), o))(t)
}

// count returns the transactions of a region on the sender's side.
func count(r *coherence.Result, region coherence.Region) int {
	n := 0
	for _, x := range r.Transactions {
		if x.Side == coherence.Sender && x.Region == region {
			n++
		}
	}
	return n
}

// TestInOrder: a block that is written in order takes an invalidation and a read, with
// EDT as in a cacheable queue.
func TestInOrder(t *testing.T) {
	s := load(t, "sonic-via")
	for _, n := range []int{8, 32, 64, 100, 1024, 4096} {
		blocks := (n + 31) / 32
		should.Be(t, count(run(t, coherence.Options{System: s, Mechanism: coherence.EDT, Bytes: n}), coherence.Payload), 2*blocks, "edt, %d bytes", n)
		should.Be(t, count(run(t, coherence.Options{System: s, Mechanism: coherence.CNI, Bytes: n}), coherence.Queue), 2*blocks, "cni, %d bytes", n)
	}
}

// TestStride: with a stride of one block each store takes an invalidation and a read.
func TestStride(t *testing.T) {
	s := load(t, "sonic-via")
	for _, n := range []int{64, 96, 1024, 4096} {
		words := n / s.Processor.Word
		r := run(t, coherence.Options{System: s, Mechanism: coherence.EDT, Bytes: n, Order: coherence.Stride})
		should.Be(t, count(r, coherence.Payload), 2*words, "%d bytes: transactions for %d words", n, words)
	}
}

// TestLazyPointers: two invalidations for each pass of the queue, whatever the message.
func TestLazyPointers(t *testing.T) {
	s := load(t, "sonic-via")
	for n, want := range map[int]int{64: 2, 4096: 2, 8192: 2, 8193: 4, 20000: 6} {
		should.Be(t, count(run(t, coherence.Options{System: s, Mechanism: coherence.CNI, Bytes: n}), coherence.Pointers), want, "%d bytes", n)
	}
}

// TestQueueIsInOrder: what is not written in order is copied, which EDT need not.
func TestQueueIsInOrder(t *testing.T) {
	s := load(t, "sonic-via")
	o := coherence.Options{System: s, Mechanism: coherence.CNI, Bytes: 1024}
	plain := run(t, o)
	o.Order = coherence.Random
	copied := run(t, o)
	if copied.Transfer <= plain.Transfer || copied.Total() <= plain.Total() {
		t.Errorf("in order %v, shuffled %v", plain, copied)
	}
	should.Be(t, count(copied, coherence.Queue), count(plain, coherence.Queue), "transactions of the queue, copied and in order")
}

// small is a machine whose caches are so small that blocks leave them all the time.
func small(t *rapid.T, s *profile.MemorySystem) *profile.MemorySystem {
	c := *s
	c.L1 = profile.Cache{Size: 64 << rapid.IntRange(0, 3).Draw(t, "l1"), Line: 32, Ways: rapid.IntRange(1, 2).Draw(t, "l1 ways"), Latency: 1}
	c.L2 = profile.Cache{Size: 256 << rapid.IntRange(0, 4).Draw(t, "l2"), Line: 32 << rapid.IntRange(0, 2).Draw(t, "l2 line"), Ways: rapid.IntRange(1, 2).Draw(t, "l2 ways"), Latency: 10}
	c.Processor.Work = rapid.IntRange(0, 200).Draw(t, "work")
	c.Bus = &profile.SystemBus{Cycle: s.Bus.Cycle, Width: s.Bus.Width, Arbitration: rapid.IntRange(0, 3).Draw(t, "arbitration"), Address: rapid.IntRange(1, 3).Draw(t, "address")}
	return &c
}

// TestRandomWrites: under any sequence of writes, words again and again or never, with
// caches that lose blocks in between, no block has two owners and none is sent stale. Run
// fails otherwise, which TestChecks shows. The bus carries one transaction at a time.
func TestRandomWrites(t *testing.T) {
	whole := load(t, "sonic-via")
	rapid.Check(t, func(t *rapid.T) {
		s := whole
		if rapid.Bool().Draw(t, "small caches") {
			s = small(t, whole)
		}
		n := rapid.IntRange(1, 3000).Draw(t, "bytes")
		o := coherence.Options{System: s, Bytes: n,
			Mechanism: rapid.SampledFrom(coherence.Mechanisms(s)).Draw(t, "mechanism"),
			DMARate:   rapid.Float64Range(1, 1600).Draw(t, "rate"),
			Until:     rapid.SampledFrom([]coherence.Until{coherence.Wire, coherence.Delivered, coherence.Consumed}).Draw(t, "until"),
			Words:     rapid.SliceOfN(rapid.IntRange(0, (n-1)/8), 1, 600).Draw(t, "words")}
		if o.Mechanism == coherence.EDT {
			o.Receiving = rapid.SampledFrom([]coherence.Receiving{coherence.WriteBack, coherence.Coherent}).Draw(t, "receiving")
		}
		r := must.Get(coherence.Run(context.Background(), o))(t)
		var last coherence.Transaction
		for _, x := range r.Transactions {
			if x.Side == last.Side && x.Start < last.End || x.Start%s.Bus.Cycle != 0 || x.End%s.Bus.Cycle != 0 || x.End <= x.Start {
				t.Fatalf("%+v after %+v", x, last)
			}
			last = x
		}
		if r.User < 0 || r.Transfer < 0 || r.Transport <= 0 || last.End > r.Total() {
			t.Fatalf("%v %v %v, last transaction ends at %v", r.User, r.Transfer, r.Transport, last.End)
		}
	})
}

// TestValidBitsAreAsFast: a program that reads an EDT message has it as early by valid bits
// and write-back as from a NIC that is coherent on receipt, too: within 2 % from 64 bytes on.
func TestValidBitsAreAsFast(t *testing.T) {
	s := load(t, "sonic-via")
	for n := 64; n <= 4096; n *= 2 {
		o := coherence.Options{System: s, Mechanism: coherence.EDT, Bytes: n, Until: coherence.Consumed}
		back := run(t, o)
		o.Receiving = coherence.Coherent
		owned := run(t, o)
		ratio := float64(back.Total()) / float64(owned.Total())
		t.Logf("%d bytes: %.2f us by valid bits, %.2f us coherent", n, back.Total().Microseconds(), owned.Total().Microseconds())
		if ratio > 1.02 {
			t.Errorf("%d bytes: %.3f times as long", n, ratio)
		}
	}
}

// TestRates: a slower DMA engine makes DMA slower and leaves EDT alone; data cycles are whole.
func TestRates(t *testing.T) {
	s := load(t, "sonic-via")
	at := func(m coherence.Mechanism, rate float64) float64 {
		return run(t, coherence.Options{System: s, Mechanism: m, Bytes: 1024, DMARate: rate}).Transfer.Microseconds()
	}
	should.Be(t, at(coherence.EDT, 800), at(coherence.EDT, 1600), "edt")
	for _, m := range []coherence.Mechanism{coherence.CCDMAIntv, coherence.CCDMARetr, coherence.DMA, coherence.Inline} {
		// 32 bytes are 2 data cycles of 16 bytes, 3 at three quarters of the rate, 4 at half.
		full, three, half := at(m, 1600), at(m, 1200), at(m, 800)
		if d, e := three-full, half-three; d <= 0 || math.Abs(d-e) > 1e-9 {
			t.Errorf("%s: %v, %v, %v us", m, full, three, half)
		}
	}
}

// TestPCIe holds the gain that pushing has over reading: the first byte is on the wire at
// least 1.2 us earlier than with inline data and 1.9 us earlier than with DMA.
func TestPCIe(t *testing.T) {
	for _, name := range []string{"pcie4-x16-100g", "pcie5-x16-400g"} {
		s := load(t, name)
		for _, n := range []int{64, 256, 1024, 1500} {
			first := func(m coherence.Mechanism) float64 {
				return run(t, coherence.Options{System: s, Mechanism: m, Bytes: n, Until: coherence.Wire}).Total().Microseconds()
			}
			edt, inline, dma := first(coherence.EDT), first(coherence.Inline), first(coherence.DMA)
			t.Logf("%s, %d bytes: edt %.2f, inline %.2f, dma %.2f us", name, n, edt, inline, dma)
			if inline-edt < 1.2 || dma-edt < 1.9 {
				t.Errorf("%s, %d bytes: %.2f us less than inline, %.2f less than DMA", name, n, inline-edt, dma-edt)
			}
		}
	}
}

// TestPushedAgain: on PCIe a block that is written again is taken back and pushed again.
func TestPushedAgain(t *testing.T) {
	s := load(t, "pcie4-x16-100g")
	for _, c := range []struct {
		words        []int
		pushes, bits int
	}{
		{[]int{0, 1, 2, 8, 9}, 2, 2}, {[]int{0, 8, 0}, 3, 4}, {[]int{3, 3, 3}, 1, 1}, {[]int{0, 8, 0, 8}, 4, 6},
	} {
		r := run(t, coherence.Options{System: s, Mechanism: coherence.EDT, Bytes: 128, Words: c.words})
		if p, b := count(r, coherence.Payload), count(r, coherence.Tags); p != c.pushes || b != c.bits {
			t.Errorf("%v: %d pushes and %d status bits, want %d and %d", c.words, p, b, c.pushes, c.bits)
		}
		for _, x := range r.Transactions {
			if x.Kind == coherence.DMARead {
				t.Errorf("%v: reads host memory: %+v", c.words, x)
			}
		}
	}
}

// TestEveryMechanism runs each on each platform, for every order and end, twice. The largest
// message, which takes most of the time, has one order unless the run is a long one.
func TestEveryMechanism(t *testing.T) {
	for _, name := range profile.Systems.Names() {
		s := load(t, name)
		for _, m := range coherence.Mechanisms(s) {
			if m.Summary(s.PCIe != nil) == "" {
				t.Errorf("%s does not say what it is", m)
			}
			for _, order := range []coherence.Order{coherence.Sequential, coherence.Stride, coherence.Random} {
				sizes := []int{1, 64, 1500, 1501}
				if order == coherence.Sequential || soak.Wanted() {
					sizes = append(sizes, coherence.MaxBytes)
				}
				for _, n := range sizes {
					o := coherence.Options{System: s, Mechanism: m, Bytes: n, Order: order, Seed: 7}
					a, b := run(t, o), run(t, o)
					if !slices.Equal(a.Transactions, b.Transactions) || a.Total() != b.Total() {
						t.Fatalf("%s, %s, %s, %d bytes: two runs differ", name, m, order, n)
					}
					if a.User <= 0 || a.Transfer <= 0 || a.Transport <= 0 || len(a.Transactions) == 0 {
						t.Errorf("%s, %s, %s, %d bytes: %v %v %v", name, m, order, n, a.User, a.Transfer, a.Transport)
					}
					o.Until = coherence.Wire
					if w := run(t, o); w.Total() >= a.Total() {
						t.Errorf("%s, %s, %s, %d bytes: on the wire after %v, delivered after %v", name, m, order, n, w.Total(), a.Total())
					}
				}
			}
		}
	}
}

func BenchmarkTransfer(b *testing.B) {
	s := load(b, "sonic-via")
	for _, m := range []coherence.Mechanism{coherence.EDT, coherence.CCDMAIntv} {
		b.Run(fmt.Sprint(m), func(b *testing.B) {
			for b.Loop() {
				run(b, coherence.Options{System: s, Mechanism: m, Bytes: 4096})
			}
		})
	}
}

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

// payloads returns how many transactions of a kind the model has for the payload on one side.
func payloads(r *coherence.Result, side coherence.Side, agent coherence.Agent, kinds ...coherence.Kind) (n uint64) {
	for _, x := range r.Transactions {
		for _, k := range kinds {
			if x.Side == side && x.Agent == agent && x.Kind == k && x.Region == coherence.Payload {
				n++
			}
		}
	}
	return n
}

// TestLiveTransactions: a live NIC's blocks that are pushed, taken, land, are written back and are read from the NIC are as many as the
// transactions of the model for them, on a memory bus with blocks of the same size and on PCIe.
func TestLiveTransactions(t *testing.T) {
	bus, pcie := *load(t, "sonic-via"), load(t, "pcie4-x16-100g")
	bus.NIC.Block = 64
	a, b := conform.OnMemory(t, "", via.Options{})
	w := conform.NewWorld(t, a, b)
	x, y := w.Connect(conform.Setup{})
	for _, c := range []struct {
		way   via.EagerReceive
		model coherence.Receiving
		until coherence.Until
	}{{via.EagerWriteBack, coherence.WriteBack, coherence.Delivered}, {via.EagerHold, coherence.Coherent, coherence.Consumed}} {
		from := must.Get(a.Alloc(conform.Context(t), 8192, via.MemoryAttributes{Eager: via.EagerAttributes{Mode: via.EagerWritten}}))(t)
		to := must.Get(b.Alloc(conform.Context(t), 8192, via.MemoryAttributes{Eager: via.EagerAttributes{Mode: via.EagerWritten, Receive: c.way}}))(t)
		for _, n := range []int{64, 1024, 4096} {
			data := bytes.Repeat([]byte{byte(n / 64), 1}, n/2)
			sent, received := must.Get(a.EagerStats())(t), must.Get(b.EagerStats())(t)
			y.Recv[0].Prepare()
			must.OK(t, to.AddTo(y.Recv[0], 0, n))
			must.OK(t, y.VI.PostRecv(y.Recv[0]))
			must.Get(from.Eager().WriteAt(data, 0))(t)
			must.OK(t, from.Eager().Flush())
			x.Send[0].Prepare()
			must.OK(t, from.AddTo(x.Send[0], 0, n))
			must.OK(t, x.VI.PostSend(x.Send[0]))
			w.MustTake(y.VI.RecvDone)
			w.MustTake(x.VI.SendDone)
			got := make([]byte, n)
			if must.Get(to.Eager().ReadAt(got, 0))(t); !bytes.Equal(got, data) {
				t.Fatalf("%s, %d bytes: others are read", c.model, n)
			}
			s, r := must.Get(a.EagerStats())(t), must.Get(b.EagerStats())(t)
			onBus := run(t, coherence.Options{System: &bus, Mechanism: coherence.EDT, Bytes: n, Until: c.until, Receiving: c.model})
			onPCIe := run(t, coherence.Options{System: pcie, Mechanism: coherence.EDT, Bytes: n, Receiving: c.model})
			for _, row := range []struct {
				what            string
				live, bus, pcie uint64
			}{
				{"pushed", s.Pushed - sent.Pushed, payloads(onBus, coherence.Sender, coherence.NIC, coherence.Read), payloads(onPCIe, coherence.Sender, coherence.Host, coherence.Push)},
				{"read by DMA", s.Read - sent.Read, 0, payloads(onPCIe, coherence.Sender, coherence.NIC, coherence.DMARead)},
				{"written back", r.WrittenBack - received.WrittenBack, payloads(onBus, coherence.Receiver, coherence.NIC, coherence.Write), payloads(onPCIe, coherence.Receiver, coherence.NIC, coherence.DMAWrite)},
				{"read by the host", r.Fetched - received.Fetched, payloads(onBus, coherence.Receiver, coherence.Host, coherence.Read), payloads(onPCIe, coherence.Receiver, coherence.Host, coherence.Load)},
				{"landed", r.Landed - received.Landed, uint64(n) / 64, uint64(n) / 64},
			} {
				if row.live != row.bus || row.live != row.pcie {
					t.Errorf("%s, %d bytes, %s: %d blocks live, %d on a bus, %d on PCIe", c.model, n, row.what, row.live, row.bus, row.pcie)
				}
			}
		}
	}
}

// TestInitialising: a registration has each block flushed, or read by the NIC; over PCIe a flush takes no transfer, as of a live NIC.
func TestInitialising(t *testing.T) {
	for name, want := range map[string]map[coherence.Initialising]int{
		"sonic-via":      {coherence.Flush: 32, coherence.NICReads: 32},
		"pcie4-x16-100g": {coherence.Flush: 0, coherence.NICReads: 16},
	} {
		for way, n := range want {
			r := run(t, coherence.Options{System: load(t, name), Mechanism: coherence.EDT, Bytes: 1024, Initialising: way})
			if r.Initialised != n || r.Registration > 0 != (n > 0) {
				t.Errorf("%s, %s: %d transactions in %v, want %d", name, way, r.Initialised, r.Registration, n)
			}
		}
	}
}
