// Probe is the program that disasm takes apart: it keeps every function to be
// checked from being left out by the linker. Running it does nothing.
package main

import (
	"runtime"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

var keep = []any{
	mmio.Read8, mmio.Read16, mmio.Read32, mmio.Read64,
	mmio.Write8, mmio.Write16, mmio.Write32, mmio.Write64,
	mmio.WriteBlocks, mmio.PushBlock, mmio.ToDevice, mmio.FromDevice, mmio.FlushWriteCombining,
	atomicmem.Store32, atomicmem.Store64, atomicmem.LoadBarrier, atomicmem.Fetch, atomicmem.Demote, publish32, publish64,
}

func main() { runtime.KeepAlive(keep) }

// publish32 and publish64 show what the compiler makes of a release: the load and the store before
// the release have to stay before it.
//
//go:noinline
func publish32(frame *[2]uint32, word *uint32, v uint32) uint32 {
	old := frame[1]
	frame[0] = v
	atomicmem.Store32(word, v)
	return old
}

//go:noinline
func publish64(frame *[2]uint64, word *uint64, v uint64) uint64 {
	old := frame[1]
	frame[0] = v
	atomicmem.Store64(word, v)
	return old
}
