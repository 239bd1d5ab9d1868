package netmem

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/trapeze-nic/trapeze/via"
)

// storeNode is the node of the store.
const storeNode = "store"

// modelStore is the store of a schedule, as a client reaches it by the network. A question may arrive long after
// the client has given up, also a swap.
type modelStore struct {
	*schedule
	client *process
}

func (m modelStore) Get(ctx context.Context) ([]byte, int64, error) {
	var value []byte
	var revision int64
	if err := m.trip(ctx, func() { value, revision, _ = m.store.Get(ctx) }); err != nil {
		return nil, 0, err // the answer may come later
	}
	return value, revision, nil
}

func (m modelStore) Swap(ctx context.Context, value []byte, revision int64) error {
	return m.trip(ctx, func() {
		_ = m.store.Swap(ctx, value, revision)
		m.trace("%s swaps revision %d for %s", m.client.node, revision, value)
	})
}

// trip does something at the store, and fails if that is not known by the end of ctx.
func (m modelStore) trip(ctx context.Context, do func()) error {
	p := m.client
	if err := p.gate(); err != nil {
		return err
	}
	p.mu.Lock()
	p.dials[storeNode]++
	r := p.random(fmt.Sprintf("%s/%d>%s/%d", p.node, p.run, storeNode, p.dials[storeNode]))
	p.mu.Unlock()
	done := make(chan struct{})
	p.running.Go(func() {
		if m.pass(r, p.node, storeNode) {
			if do(); m.pass(r, storeNode, p.node) {
				close(done)
			}
		}
	})
	select {
	case <-done:
		return p.gate()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", via.ErrTimeout, ctx.Err())
	case <-m.over:
		return errOver
	}
}

// pass waits until a message arrives. It reports false if it never does.
func (m modelStore) pass(r *rand.Rand, from, to string) bool {
	way, waited := [2]string{from, to}, false
	return m.sleep(nil, m.latency(r)) && m.await(nil, func() bool {
		waited = waited || m.cut[way] > 0
		return m.cut[way] <= 0
	}) && !(waited && r.IntN(2) == 0) && !(m.client.gone() && r.IntN(2) == 0)
}

func (p *process) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}
