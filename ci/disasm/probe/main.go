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
	atomicmem.Store32, atomicmem.Store64, atomicmem.LoadBarrier, atomicmem.Fetch, atomicmem.Demote,
}

func main() { runtime.KeepAlive(keep) }
