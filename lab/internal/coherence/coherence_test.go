package coherence_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

func load(t testing.TB, name string) *profile.MemorySystem {
	t.Helper()
	return must.Get(profile.Systems.Load(name))(t)
}

func run(t testing.TB, o coherence.Options) *coherence.Result {
	t.Helper()
	r, err := coherence.Run(context.Background(), o)
	if err != nil {
		t.Fatalf("%s, %d bytes: %v", o.Mechanism, o.Bytes, err)
	}
	return r
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
		if got := count(run(t, coherence.Options{System: s, Mechanism: coherence.EDT, Bytes: n}), coherence.Payload); got != 2*blocks {
			t.Errorf("edt, %d bytes: %d transactions for %d blocks", n, got, blocks)
		}
		if got := count(run(t, coherence.Options{System: s, Mechanism: coherence.CNI, Bytes: n}), coherence.Queue); got != 2*blocks {
			t.Errorf("cni, %d bytes: %d transactions for %d blocks", n, got, blocks)
		}
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
		if got := count(run(t, coherence.Options{System: s, Mechanism: coherence.CNI, Bytes: n}), coherence.Pointers); got != want {
			t.Errorf("%d bytes: %d, want %d", n, got, want)
		}
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
	if a, b := count(plain, coherence.Queue), count(copied, coherence.Queue); a != b {
		t.Errorf("%d transactions of the queue in order, %d of a copy", a, b)
	}
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
	if a, b := at(coherence.EDT, 1600), at(coherence.EDT, 800); a != b {
		t.Errorf("edt: %v and %v us", a, b)
	}
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
			for _, order := range coherence.Orders {
				sizes := []int{1, 64, 1500, 1501}
				if order == coherence.Orders[0] || soak.Wanted() {
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
