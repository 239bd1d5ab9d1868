package datasheet_test

import (
	"math"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestPhaseOf checks what a consumer relies on: the phase bit is 1 in the first pass, and that
// of an entry differs from what the pass before left there, across the wrap of the index too.
func TestPhaseOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		index := rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(math.MaxUint32-4, math.MaxUint32)).Draw(t, "index")
		log2 := uint8(rapid.IntRange(MinCQLog2, MaxCQLog2).Draw(t, "log2"))
		here := PhaseOf(index, log2)
		must.Be(t, PhaseOf(index&(1<<log2-1), log2), 1, "in the first pass")
		must.Be(t, PhaseOf(index+1<<log2, log2), 1-here, "one pass later")
		must.Be(t, PhaseOf(index|(1<<log2-1), log2), here, "at the end of the pass of %#x", index)
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
