//go:build nffgo

package nffgo

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
)

const (
	// burst is the exact number of packets of nff-go's vector functions.
	burst = 32
	// maxFrame is the room of nff-go's buffers besides DPDK's headroom, in bytes.
	maxFrame = 2048
)

// Queue is a queue of a port, as the end of a flow.
type Queue struct {
	port  ethernet.Port
	queue ethernet.Queue
	pool  *ethernet.Pool
	// timeout is the time that a sender waits for room.
	timeout time.Duration

	// lock is held by who uses the queue: receiver and sender are two threads of nff-go.
	lock hotlock.Mutex

	received, sending atomic.Bool // SetReceiver, SetSender were called
	receiving         atomic.Bool // a receiver runs

	err    atomic.Pointer[error]
	counts struct{ received, sent, unsent, bad atomic.Uint64 }
}

// Counters are those of a Queue, in frames. What was lost before is in those of the
// port.
type Counters struct {
	// Received came into the graph.
	Received uint64
	// Sent were taken by the port.
	Sent uint64
	// Unsent found no room in the send ring in time, or no buffer in the pool, or the port
	// had failed.
	Unsent uint64
	// Bad were packets that are no frames of the port: too short, too long, or in several
	// buffers.
	Bad uint64
}

// Join takes a queue of a port. The port must have neither frames that are longer than
// nff-go's buffers, 2048 bytes, nor tags taken out of them. It fails with an
// *ethernet.ConfigError.
func Join(p ethernet.Port, queue int) (*Queue, error) {
	info := p.Info()
	fail := func(field string, value any, want string) (*Queue, error) {
		return nil, &ethernet.Error{Op: "join", Device: info.Device, Err: &ethernet.ConfigError{Field: field, Value: value, Want: want}}
	}
	q := p.Queue(queue)
	switch {
	case q == nil:
		return fail("queue", queue, fmt.Sprintf("0 to %d", info.Options.Queues-1))
	case info.Options.MaxFrame() > maxFrame:
		return fail("Options.MTU", info.Options.MTU, fmt.Sprintf("at most %d: nff-go's buffers take %d bytes", maxFrame-ethernet.HeaderSize-ethernet.TagSize, maxFrame))
	case info.Options.Offloads&ethernet.OffloadVLAN != 0:
		return fail("Options.Offloads", info.Options.Offloads, "no VLAN: nff-go would not see the tags")
	}
	return &Queue{port: p, queue: q, pool: q.Cache().Pool(), timeout: info.Options.Timeout}, nil
}

// Stats returns what was counted since Join.
func (q *Queue) Stats() Counters {
	c := &q.counts
	return Counters{Received: c.received.Load(), Sent: c.sent.Load(), Unsent: c.unsent.Load(), Bad: c.bad.Load()}
}

// Err returns with what error the port failed last, nil if it did not. A port that works
// again, after Port.Restart, is used again.
func (q *Queue) Err() error {
	if err := q.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (q *Queue) fail(err error) { q.err.Store(&err) }

func (q *Queue) inUse(op string) error {
	return &ethernet.Error{Op: op, Device: q.port.Info().Device, Err: ethernet.ErrInUse, Hint: "a queue is one source and one sink"}
}

// pause waits a little. nff-go's own threads never do; with less cores than threads, the
// others wait for this one.
type pause struct{ looks int }

const (
	looks = 64
	nap   = 20 * time.Microsecond
)

func (p *pause) wait() {
	if p.looks++; p.looks > looks {
		time.Sleep(nap)
	}
}
