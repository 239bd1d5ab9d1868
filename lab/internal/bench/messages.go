package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// discriminator of the connections of a measurement.
const discriminator = "trapeze-bench/1"

// connectLimit bounds how long one end waits for the other one.
const connectLimit = 20 * time.Second

// connecting is the time that all VIs of a task may take.
func (t *Task) connecting() time.Duration {
	return connectLimit + time.Duration(t.VIs+t.Unused)*20*time.Millisecond
}

// Connect connects two VIs of this process, whose NICs are on one wire.
func Connect(ctx context.Context, x, y *via.VI) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	accepted := make(chan error, 1)
	go func() { accepted <- accept(ctx, y) }()
	err := dial(ctx, x, y.NIC().Query().Address)
	if err != nil {
		cancel()
	}
	return errors.Join(err, <-accepted)
}

// accept takes the next request to be connected.
func accept(ctx context.Context, vi *via.VI) error {
	c, err := vi.NIC().ConnectWait(ctx, discriminator)
	if err == nil {
		_, err = c.Accept(ctx, vi)
	}
	return err
}

// dial repeats its request until the other side accepts.
func dial(ctx context.Context, vi *via.VI, to via.MAC) error {
	_, err := vi.Dial(ctx, via.Address{MAC: to, Discriminator: discriminator}, "")
	return err
}

// openMessages makes the worker's ends on VIs and connects them.
func (p *part) openMessages(ctx context.Context) (func(*Side) error, error) {
	nic, err := p.openNIC(ctx, p.Address)
	if err != nil {
		return nil, err
	}
	if p.Role == Both {
		return p.openBoth(ctx, nic)
	}
	connecting, cancel := context.WithTimeout(ctx, p.connecting())
	defer cancel()
	room, err := p.newRoom(ctx, nic)
	if err != nil {
		return nil, err
	}
	p.ready()
	var ends []*end
	for i := range p.VIs {
		e, err := p.newEnd(connecting, room, nil)
		switch {
		case err != nil:
		case p.Role == Echo:
			err = accept(connecting, e.vi)
		default:
			err = dial(connecting, e.vi, datasheet.Broadcast)
		}
		if err == nil && e.rdma != nil {
			if err = e.tell(); err == nil {
				err = e.learn(connecting)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("VI %d of %d: %w", i+1, p.VIs, err)
		}
		ends = append(ends, e)
	}
	switch {
	case p.Role == Echo && p.Test == Idle:
		return func(side *Side) error { return p.sleep(ctx, ends[0].rarely(), side) }, nil
	case p.Role == Echo:
		return func(side *Side) error { return p.echo(ctx, ends, side) }, nil
	}
	return p.source(ctx, ends), nil
}

// source returns what the end does that begins.
func (p *part) source(ctx context.Context, ends []*end) func(*Side) error {
	turn := roundTrip
	switch p.Test {
	case Idle:
		return func(*Side) error { return p.wake(ctx, ends[0].rarely()) }
	case Bandwidth:
		return func(side *Side) error {
			return p.stream(side, func(d time.Duration) (uint64, error) { return p.sendFor(ctx, ends, d) })
		}
	case Put:
		turn = putRoundTrip
	case Get:
		turn = get
	}
	return func(side *Side) error {
		return p.timed(side, func(i int) error { return turn(ctx, ends[i%len(ends)], p.Bytes) })
	}
}

// echo sends back what comes, or only takes it, until the source disconnects.
func (p *part) echo(ctx context.Context, ends []*end, side *Side) error {
	return p.counted(side, func() (messages uint64, err error) {
		for ends[0].looks = 0; ; {
			if err := ends[0].pause(ctx); err != nil {
				return messages, err
			}
			for _, e := range ends {
				n, err := p.reply(ctx, e)
				if via.Ended(err) {
					return messages, nil
				}
				if err != nil {
					return messages, err
				}
				if n > 0 {
					ends[0].looks = 0
					messages += uint64(n)
				}
			}
		}
	})
}

// reply takes what has come to an end, and in a test of round trips answers it. It
// returns how many messages there were.
func (p *part) reply(ctx context.Context, e *end) (int, error) {
	switch p.Test {
	case Bandwidth:
		return e.drain(p.batch())
	case Put, Get:
		return replyRDMA(ctx, e)
	}
	if came, err := e.receive(); !came {
		return 0, err
	}
	// The answer goes first: buffers can be given back while it is under way.
	if err := answer(ctx, e, len(e.message)); err != nil {
		return 0, err
	}
	return 1, tidy(e)
}

func answer(ctx context.Context, e *end, n int) error {
	if err := e.until(ctx, (*end).acquire); err != nil {
		return err
	}
	return e.Post(n)
}

// tidy gives back the buffer of the last message and takes back those that have
// been sent: what can be done while the next message is under way.
func tidy(e *end) error {
	if e.message != nil {
		if err := e.Release(); err != nil {
			return err
		}
	}
	return e.reap()
}

// roundTrip sends a message and takes the answer, whose buffer is given back while
// the next one is under way.
func roundTrip(ctx context.Context, e *end, n int) error {
	if err := answer(ctx, e, n); err != nil {
		return err
	}
	if err := tidy(e); err != nil {
		return err
	}
	if err := e.until(ctx, (*end).receive); err != nil {
		return err
	}
	if len(e.message) != n {
		return fmt.Errorf("a message of %d bytes came back with %d", n, len(e.message))
	}
	return nil
}

// batch is the number of messages of a stream that are posted at a time: some batches make a
// window, so that one end has something to do while the other fills the next.
func (p *part) batch() int { return max(p.Window/8, 1) }

// sendFor sends for about d as fast as the windows allow, waits until all has arrived, and returns the number
// of messages. A send on a reliable VI completes when its message has arrived.
func (p *part) sendFor(ctx context.Context, ends []*end, d time.Duration) (sent uint64, err error) {
	// How many posts there are between two looks at the clock: each end has its
	// turn.
	burst := max(16, len(ends))
	for end := time.Now().Add(d); time.Now().Before(end); {
		if ctx.Err() != nil {
			return sent, context.Cause(ctx)
		}
		before := sent
		for turn := range burst {
			n, err := ends[turn%len(ends)].postBatch(p.batch(), p.Bytes)
			sent += uint64(n)
			if err != nil {
				return sent, err
			}
		}
		if sent != before && ends[0].serve == nil {
			ends[0].looks = 0
		} else if err := ends[0].pause(ctx); err != nil {
			return sent, err
		}
	}
	for _, e := range ends {
		if err := e.flush(ctx); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// rdma holds what an end has besides for the tests Put and Get: memory that the other end writes
// to or reads from, and where the other end has its own.
type rdma struct {
	read   bool // rather than write
	bytes  int  // of an operation
	target *via.Memory
	// word is the last one of the target with the last byte of a message in it, which
	// has the number of the write.
	word  *uint32
	shift int
	// address and handle of the other end's target.
	address uint64
	handle  uint32
	// written and landed are the numbers of the latest writes of this end and of the
	// other one, modulo 256. Memory that was never written to has number 0.
	written, landed byte
}

// tellSize is the number of bytes that one end tells the other one about its target: the address
// and the handle.
const tellSize = 12

// mark is the last byte of what is read.
const mark = 0xA5

// newRDMA makes the target of an end.
func (p *part) newRDMA(ctx context.Context, nic *via.NIC) (*rdma, error) {
	const word = 4
	m, err := nic.Alloc(ctx, (p.Bytes+word-1)&^(word-1), via.MemoryAttributes{RDMAWrite: p.Test == Put, RDMARead: p.Test == Get})
	if err != nil {
		return nil, err
	}
	last := p.Bytes - 1
	r := &rdma{read: p.Test == Get, bytes: p.Bytes, target: m, shift: 8 * (last % word)}
	r.word = datasheet.IndexAt(m.Bytes()[last&^(word-1):])
	if r.read {
		m.Bytes()[last] = mark
	}
	return r, nil
}

// tell sends the other end where this one's target is.
func (e *end) tell() error {
	if free, err := e.acquire(); !free {
		return err
	}
	buf := e.buffer()
	binary.LittleEndian.PutUint64(buf, e.rdma.target.Address())
	binary.LittleEndian.PutUint32(buf[8:], e.rdma.target.Handle())
	err := e.Post(tellSize)
	e.Poll()
	return err
}

// learn waits for what the other end tells.
func (e *end) learn(ctx context.Context) error {
	d, err := e.vi.RecvWait(ctx)
	if err != nil {
		return lost(err)
	}
	if d.Length() != tellSize {
		return fmt.Errorf("the other end tells of its memory in %d bytes, not %d", d.Length(), tellSize)
	}
	told := e.buffers[e.recvOffset(e.taken):]
	e.rdma.address, e.rdma.handle = binary.LittleEndian.Uint64(told), binary.LittleEndian.Uint32(told[8:])
	return e.Release()
}

// landed reports whether the other end's next write is there, and else has an inline NIC make progress. It
// fails if the connection has ended, which memory does not tell.
func (e *end) landed() (bool, error) {
	if r := e.rdma; byte(atomic.LoadUint32(r.word)>>r.shift) == r.landed+1 {
		r.landed++
		return true, nil
	}
	came, err := e.receive()
	if came {
		return false, fmt.Errorf("a message of %d bytes that was not asked for", len(e.message))
	}
	return false, err
}

// put writes n bytes to the other end, the last of which is the number of the write, as
// ucx_perftest has it in ucp_put_lat.
func put(ctx context.Context, e *end, n int) error {
	if err := e.until(ctx, (*end).acquire); err != nil {
		return err
	}
	e.rdma.written++
	e.buffer()[n-1] = e.rdma.written
	if err := e.Post(n); err != nil {
		return err
	}
	e.Poll() // an inline NIC finds what has arrived
	return e.reap()
}

// putRoundTrip writes to the other end, and polls memory until that has written back, and the NIC,
// which has a part in it.
func putRoundTrip(ctx context.Context, e *end, n int) error {
	if err := put(ctx, e, n); err != nil {
		return err
	}
	return e.until(ctx, (*end).landed)
}

// get reads n bytes from the other end and waits until they are here, as ucx_perftest does
// in ucp_get with one operation under way.
func get(ctx context.Context, e *end, n int) error {
	if err := e.until(ctx, (*end).acquire); err != nil {
		return err
	}
	buf := e.buffer()
	buf[n-1] = ^byte(mark)
	if err := e.Post(n); err != nil {
		return err
	}
	if err := e.flush(ctx); err != nil {
		return err
	}
	if last := buf[n-1]; last != mark {
		return fmt.Errorf("a read of %d bytes ends with %#x, not %#x", n, last, mark)
	}
	return nil
}

// replyRDMA writes back if the other end has written, or has the NIC answer reads. It
// returns how many writes or answers there were.
func replyRDMA(ctx context.Context, e *end) (int, error) {
	if e.rdma.read && e.Poll() {
		return 1, nil
	}
	landed, err := e.landed()
	if !landed {
		return 0, err
	}
	return 1, put(ctx, e, e.rdma.bytes)
}
