package netmem

import (
	"context"
	"sync"
)

// TestStore is a Store in memory.
type TestStore struct {
	mu       sync.Mutex
	value    []byte
	revision int64
	// onSwap, if it is not nil, is called before each swap.
	onSwap func()
}

// Get is that of Store.
func (s *TestStore) Get(context.Context) ([]byte, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.revision, nil
}

// Swap is that of Store.
func (s *TestStore) Swap(_ context.Context, value []byte, revision int64) error {
	if s.onSwap != nil {
		s.onSwap()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision == s.revision {
		s.value, s.revision = value, s.revision+1
	}
	return nil
}
