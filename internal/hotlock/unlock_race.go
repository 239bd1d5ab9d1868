//go:build race

package hotlock

import "sync/atomic"

// Unlock is that of builds without the race detector, which does not see plain
// stores in assembly.
func (m *Mutex) Unlock() { atomic.StoreUint32(&m.word, 0) }
