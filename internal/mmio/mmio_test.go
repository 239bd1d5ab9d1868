package mmio_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// around holds a register between neighbours that an access of the wrong width
// or place would change or read.
type around[T any] struct{ before, at, after T }

func access[T uint8 | uint16 | uint32 | uint64](t *testing.T, name string, read func(*T) T, write func(*T, T)) {
	t.Run(name, func(t *testing.T) {
		// Heap memory stands in for registers here.
		all := ^T(0)
		for _, v := range []T{0, 1, all, all >> 1, all - all>>1, all / 3, all / 3 * 2} {
			r := &around[T]{before: ^v, at: ^v, after: ^v}
			write(&r.at, v)
			should.Be(t, *r, around[T]{^v, v, ^v}, "after writing %#x", v)
			should.Be(t, read(&r.at), v)
			should.Be(t, *r, around[T]{^v, v, ^v}, "after reading %#x", v)
		}
	})
}

func TestAccess(t *testing.T) {
	access(t, "8", mmio.Read8, mmio.Write8)
	access(t, "16", mmio.Read16, mmio.Write16)
	access(t, "32", mmio.Read32, mmio.Write32)
	access(t, "64", mmio.Read64, mmio.Write64)
}

// TestWriteBlocks copies blocks between neighbours that must stay as they are.
func TestWriteBlocks(t *testing.T) {
	var from [4 * 64]byte
	for i := range from {
		from[i] = byte(i%255 + 1)
	}
	for n := 1; n <= 4; n++ {
		var memory [6 * 64]byte
		for shift := range 64 {
			clear(memory[:])
			mmio.WriteBlocks((*[64]byte)(memory[shift:]), (*[64]byte)(from[:]), n)
			for i, got := range memory {
				want := byte(0)
				if i >= shift && i < shift+64*n {
					want = from[i-shift]
				}
				must.Be(t, got, want, "%d blocks shifted by %d: byte %d", n, shift, i)
			}
		}
	}
}

// TestPushBlock: the block and its status are written, and nothing beside them.
func TestPushBlock(t *testing.T) {
	var from, to [64]byte
	for i := range from {
		from[i] = byte(i + 1)
	}
	status := [3]uint8{9, 9, 9}
	mmio.PushBlock(&to, &from, &status[1], 0xa5)
	if to != from || status != [3]uint8{9, 0xa5, 9} {
		t.Errorf("block %v, status %v", to, status)
	}
}

// TestBarriers passes a ring of values from one thread to another the way a
// driver and a device do: fill, ToDevice, index; index, FromDevice, take.
func TestBarriers(t *testing.T) {
	const size, rounds = 16, 20000
	var ring [size]uint64
	var produced, consumed uint32
	var both sync.WaitGroup
	both.Go(func() {
		for i := uint32(0); i < rounds; i++ {
			for i-mmio.Read32(&consumed) == size {
				runtime.Gosched()
			}
			mmio.Write64(&ring[i%size], uint64(i)<<32|uint64(^i))
			mmio.ToDevice()
			mmio.Write32(&produced, i+1)
		}
	})
	both.Go(func() {
		for i := uint32(0); i < rounds; {
			end := mmio.Read32(&produced)
			if end == i {
				runtime.Gosched()
			}
			mmio.FromDevice()
			for ; i != end; i++ {
				if got, want := mmio.Read64(&ring[i%size]), uint64(i)<<32|uint64(^i); got != want {
					t.Errorf("value %d is %#x, want %#x", i, got, want)
				}
			}
			// The loads above come before this store on both architectures: it
			// is what lets the producer overwrite.
			mmio.FromDevice()
			mmio.Write32(&consumed, i)
		}
	})
	both.Wait()
}

func TestFlushWriteCombining(t *testing.T) {
	var word uint32
	mmio.Write32(&word, 7)
	mmio.FlushWriteCombining()
	should.Be(t, mmio.Read32(&word), 7)
}

func TestNoAllocation(t *testing.T) {
	word := new(uint32)
	should.Be(t, testing.AllocsPerRun(100, func() {
		mmio.Write32(word, mmio.Read32(word)+1)
		mmio.ToDevice()
	}), 0, "allocations")
}
