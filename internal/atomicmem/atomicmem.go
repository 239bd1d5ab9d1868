//go:build amd64 || arm64

// Package atomicmem accesses cached memory that other threads, other processes or an
// emulated device look at: stores with release, a barrier between loads, and hints
// about cache lines. Loads with acquire are those of sync/atomic.
//
// The stores of sync/atomic order more than that, and compile to locked exchanges on
// amd64, where a plain store already releases. Registers of devices are for package
// mmio. Most are assembly, and ci/disasm checks what they became. Under the race detector the
// stores are those of sync/atomic.
package atomicmem

// LoadBarrier keeps the loads before it ahead of those that follow.
func LoadBarrier()

// Fetch begins to fetch the two cache lines at p, of 64 bytes each.
//
//go:noescape
func Fetch(p *byte)

// Demote hints that so many cache lines of 64 bytes at p, at least one, should go to
// the cache that all cores share: another core finds them there sooner than in this
// core's.
//
//go:noescape
func Demote(p *byte, lines int)
