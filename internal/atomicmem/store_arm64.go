//go:build !race

package atomicmem

// Store32 stores v at p after everything that precedes it in program order.
//
//go:noescape
func Store32(p *uint32, v uint32)

// Store64 is Store32 for 64 bits.
//
//go:noescape
func Store64(p *uint64, v uint64)
