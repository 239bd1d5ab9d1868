package datasheet_test

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

func TestPhaseOf(t *testing.T) {
	for _, tt := range []struct {
		index uint32
		log2  uint8
		want  uint32
	}{
		{0, 1, 1}, {1, 1, 1}, {2, 1, 0}, {3, 1, 0}, {4, 1, 1},
		{4095, 12, 1}, {4096, 12, 0}, {8191, 12, 0}, {8192, 12, 1},
		{1<<MaxCQLog2 - 1, MaxCQLog2, 1}, {1 << MaxCQLog2, MaxCQLog2, 0},
		// The number of passes is even, so the phase goes on across the wrap of
		// the free-running index.
		{0xffffffff, 1, 0}, {0xffffffff, MaxCQLog2, 0},
	} {
		should.Be(t, PhaseOf(tt.index, tt.log2), tt.want, "PhaseOf(%#x, %d)", tt.index, tt.log2)
	}
}

// TestPhaseChangesOncePerPass checks what a consumer relies on: the phase bit
// of an entry differs from what the pass before left there.
func TestPhaseChangesOncePerPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		index := rapid.Uint32().Draw(t, "index")
		log2 := uint8(rapid.IntRange(MinCQLog2, MaxCQLog2).Draw(t, "log2"))
		here := PhaseOf(index, log2)
		if here > 1 {
			t.Fatalf("phase %d is not a bit", here)
		}
		if next := PhaseOf(index+1<<log2, log2); next == here {
			t.Fatalf("one pass later the phase is still %d", here)
		}
		if last := index | (1<<log2 - 1); PhaseOf(last, log2) != here {
			t.Fatalf("phase changes within the pass of %#x", index)
		}
	})
}

// TestPublishHandsOver runs a producer and a consumer over a completion ring on
// two goroutines: whoever sees the phase bit must see the rest of the entry.
// The ring lies outside the Go heap, as in use.
func TestPublishHandsOver(t *testing.T) {
	const log2, total = 3, 20000
	mem := must.Get(unix.Mmap(-1, 0, PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS))(t)
	defer func() {
		should.OK(t, unix.Munmap(mem))
	}()
	ring := CompletionsAt(mem[:CompletionSize<<log2])
	taken := IndexAt(mem[PageSize/2:])

	go func() {
		for i := uint32(0); i < total; i++ {
			for i-LoadIndex(taken) == 1<<log2 {
				runtime.Gosched()
			}
			e := &ring[i%(1<<log2)]
			e.Endpoint, e.Index, e.Status = ^i, i, i*3
			e.Publish(PhaseOf(i, log2))
		}
	}()
	for i := uint32(0); i < total; i++ {
		e := &ring[i%(1<<log2)]
		for e.LoadFlags()&CompletionPhase != PhaseOf(i, log2) {
			runtime.Gosched()
		}
		if e.Endpoint != ^i || e.Index != i || e.Status != i*3 {
			t.Errorf("entry %d holds %#x %d %d", i, e.Endpoint, e.Index, e.Status)
		}
		StoreIndex(taken, i+1)
	}
}
