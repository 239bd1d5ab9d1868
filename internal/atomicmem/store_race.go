//go:build race

package atomicmem

import "sync/atomic"

// Store32 stores v at p after everything that precedes it in program order. The race detector sees it.
func Store32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Store64 is Store32 for 64 bits.
func Store64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
