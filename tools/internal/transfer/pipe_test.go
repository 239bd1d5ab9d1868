package transfer_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/via"
)

// pipe is a link in memory. Two ends share two queues of messages.
type pipe struct {
	max        int
	out, in    chan []byte
	gone       chan struct{} // closed when either end disconnects
	disconnect func()
	buf        []byte
	sent       int
	received   bool
}

const pipeDepth = 8

func newPipe(max int) (a, b *pipe) {
	x, y, gone := make(chan []byte, pipeDepth), make(chan []byte, pipeDepth), make(chan struct{})
	disconnect := sync.OnceFunc(func() { close(gone) })
	return &pipe{max: max, out: x, in: y, gone: gone, disconnect: disconnect}, &pipe{max: max, out: y, in: x, gone: gone, disconnect: disconnect}
}

func lost() error { return fmt.Errorf("pipe: %w", via.ErrDisconnected) }

func (p *pipe) MaxMessage() int { return p.max }

func (p *pipe) Acquire(ctx context.Context) ([]byte, error) {
	if p.buf == nil {
		p.buf = make([]byte, p.max)
	}
	return p.buf, ctx.Err()
}

func (p *pipe) Post(n int) error {
	select {
	case <-p.gone:
		return lost()
	default:
	}
	select {
	case p.out <- append([]byte(nil), p.buf[:n]...):
		p.sent++
		return nil
	case <-p.gone:
		return lost()
	}
}

func (p *pipe) Flush(ctx context.Context) error { return ctx.Err() }

func (p *pipe) Receive(ctx context.Context) ([]byte, error) {
	select {
	case b := <-p.in:
		return p.take(b)
	case <-p.gone:
		// What arrived before the end can still be received.
		select {
		case b := <-p.in:
			return p.take(b)
		default:
			return nil, lost()
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipe) TryReceive() ([]byte, error) {
	ended := false
	select {
	case <-p.gone:
		ended = true
	default:
	}
	select {
	case b := <-p.in:
		return p.take(b)
	default:
	}
	if ended {
		return nil, lost()
	}
	return nil, nil
}

func (p *pipe) take(b []byte) ([]byte, error) {
	if p.received {
		return nil, fmt.Errorf("pipe: received again before the release")
	}
	p.received = true
	return b, nil
}

func (p *pipe) Release() error {
	if !p.received {
		return fmt.Errorf("pipe: release without a message")
	}
	p.received = false
	return nil
}

// say sends a message that need not make sense.
func (p *pipe) say(b []byte) {
	p.Acquire(context.Background())
	p.Post(copy(p.buf, b))
}

// memory is a sink.
type memory struct {
	mu                   sync.Mutex
	data                 []byte
	writeErr, commitErr  error
	committed, discarded bool
	blocked              chan struct{} // Write waits for it if not nil
}

func (m *memory) Write(b []byte) (int, error) {
	if m.blocked != nil {
		<-m.blocked
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writeErr != nil {
		return 0, m.writeErr
	}
	m.data = append(m.data, b...)
	return len(b), nil
}

func (m *memory) Commit() error {
	if m.commitErr != nil {
		return m.commitErr
	}
	m.committed = true
	return nil
}

func (m *memory) Discard() error {
	m.discarded = true
	return nil
}
