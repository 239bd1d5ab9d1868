//go:build amd64 && !race

package atomicmem

// Store32 stores v at p after everything that precedes it in program order. The compiler keeps
// stores, and the loads before them, in order, and amd64 does too: ci/disasm checks what became of it.
func Store32(p *uint32, v uint32) { *p = v }

// Store64 is Store32 for 64 bits.
func Store64(p *uint64, v uint64) { *p = v }
