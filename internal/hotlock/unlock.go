//go:build !race

package hotlock

import "github.com/trapeze-nic/trapeze/internal/atomicmem"

// Unlock unlocks m, which must be locked: a plain store with release, where
// sync/atomic would compile to a locked exchange on amd64.
func (m *Mutex) Unlock() { atomicmem.Store32(&m.word, 0) }
