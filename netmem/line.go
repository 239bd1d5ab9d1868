package netmem

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// line is one connection with a server. What fails on it ends it: a link gets a new one.
type line struct {
	conn        conn
	to          via.Address
	incarnation uint64
	// record is that of the server's pool, as the server said last.
	record atomic.Pointer[protocol.Record]
	// window reads the server's memory; nil: the client does not.
	window  atomic.Pointer[window]
	opens   time.Time     // when it is tried next
	wait    time.Duration // between the last two tries
	once    sync.Once
	ctx     context.Context // ends with close
	end     func()
	why     error         // it has ended; guarded by the link
	timeout time.Duration // of each call
}

func dialLine(ctx context.Context, f fabric, to via.Address, timeout time.Duration) (*line, protocol.Description, error) {
	c, err := f.dial(ctx, to, timeout)
	if err != nil {
		return nil, protocol.Description{}, err
	}
	l := &line{conn: c, to: to, timeout: timeout}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.record.Store(&protocol.Record{})
	d, err := l.describe(ctx, &protocol.Request{Operation: protocol.Describe})
	if err != nil {
		l.close()
		return nil, d, err
	}
	return l, d, nil
}

// call sends a request and waits for its reply, until the line's timeout. It fails unless there is a reply of
// this protocol, whatever that says, with a payload that fills into if a page server grants the request; a Find
// may have none. While the server is busy it asks again, for half of the timeout. Its errors end the line.
func (l *line) call(ctx context.Context, q *protocol.Request, send, into ring.Frame) (protocol.Reply, ring.Reply, error) {
	deadline := time.Now().Add(l.timeout)
	if q.Operation != protocol.Describe {
		q.Incarnation = l.incarnation
	}
	for {
		reply, err := l.conn.call(ctx, *q, send, into)
		if err != nil {
			return protocol.Reply{}, reply, err
		}
		r, err := protocol.ParseReply(q.Operation, reply.Bytes())
		short := q.Operation.OfHosts() || q.Operation == protocol.Find && r.Length == 0 // the callers look at it
		switch {
		case err != nil:
			return r, reply, err
		case r.Incarnation != l.incarnation && l.incarnation != 0, r.Result == protocol.OtherIncarnation:
			return r, reply, ErrRestarted
		case int(r.Length) != reply.Length, r.Result == protocol.OK && reply.Length != into.Length && !short:
			return r, reply, fmt.Errorf("%w: %d bytes came of %d, and it says %d", ErrProtocol, reply.Length, into.Length, r.Length)
		case r.Result != protocol.Busy || q.Operation.OfHosts() || ctx.Err() != nil || time.Until(deadline) < l.timeout/2:
			return r, reply, nil
		}
		time.Sleep(pause)
	}
}

// pause between tries while a server is busy.
const pause = 50 * time.Microsecond

// describe asks what is lent, or has the server adopt a record.
func (l *line) describe(ctx context.Context, q *protocol.Request) (protocol.Description, error) {
	r, reply, err := l.call(ctx, q, ring.Frame{}, ring.Frame{})
	switch {
	case err != nil:
		return protocol.Description{}, err
	case r.Result == protocol.OtherPool:
		return protocol.Description{Record: protocol.Record{Pool: r.Version}}, ErrOtherPool
	case r.Result != protocol.OK:
		return protocol.Description{}, refusal(r.Result)
	}
	d, err := protocol.ParseDescription(reply.Bytes())
	if err != nil {
		return d, err
	}
	if l.incarnation == 0 { // it is the first call
		l.incarnation = r.Incarnation
	}
	l.record.Store(&d.Record)
	return d, nil
}

// ask makes a request that nothing else belongs to, and fails unless it is granted.
func (l *line) ask(ctx context.Context, what protocol.Operation) ([]byte, error) {
	r, reply, err := l.call(ctx, &protocol.Request{Operation: what}, ring.Frame{}, ring.Frame{})
	if err == nil && r.Result != protocol.OK {
		err = refusal(r.Result)
	}
	return reply.Bytes(), err
}

// adopt has the server adopt a record, in which it was let in since an epoch. The error is ErrEpoch if it knows a
// newer one.
func (l *line) adopt(ctx context.Context, r protocol.Record, since uint64, joining bool) error {
	q := protocol.Request{Operation: protocol.Adopt}
	q.SetRecord(r, since, joining)
	_, err := l.describe(ctx, &q)
	return err
}

// blank says that the server belongs to no pool: it is new, or has lost what it had.
func (l *line) blank() bool { return l.record.Load().Pool == 0 }

// copy asks for a page, or for the stamps of the pages from it on (protocol.Fetch, protocol.Stamps).
func (l *line) copy(ctx context.Context, what protocol.Operation, epoch, page uint64, into ring.Frame) (protocol.Reply, error) {
	r, _, err := l.call(ctx, &protocol.Request{Operation: what, Epoch: epoch, Page: page, Length: uint32(into.Length)}, ring.Frame{}, into)
	return r, err
}

// writeOlder writes a page if its version is below next.
func (l *line) writeOlder(ctx context.Context, epoch, page uint64, from ring.Frame, next Version, client uint64) (protocol.Reply, error) {
	r, _, err := l.call(ctx, &protocol.Request{Epoch: epoch, Operation: protocol.Write, Condition: protocol.IfOlder,
		Length: uint32(from.Length), Page: page, Next: uint64(next), Client: client}, from, ring.Frame{})
	return r, err
}

// close ends the line. When it returns nothing lands in any frame any more.
func (l *line) close() {
	l.end()
	l.dropWindow(l.window.Load())
	l.once.Do(l.conn.close)
}

// openWindow makes the line read the server's memory, if that is a copy. The connection comes first, so
// that it is with the server that answers.
func (l *line) openWindow(ctx context.Context) error {
	in, cancel := context.WithTimeout(l.ctx, l.timeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	from, err := l.conn.reader(in, l.timeout)
	if err != nil {
		return err
	}
	w := &window{reader: from}
	b, err := l.ask(in, protocol.Direct)
	if err == nil {
		w.Window, err = protocol.ParseWindow(b)
	}
	for try := 0; err == nil; try++ { // the peer may have to be told of the connection
		var atOnce bool
		if atOnce, err = from.read(in, w.Handle, 0, ring.Frame{}, w.Table, &w.now); atOnce {
			break
		}
		if err == nil && try == firstReads {
			err = errNotAtOnce
		}
	}
	if err != nil {
		from.close()
		return err
	}
	l.window.Store(w)
	if l.ctx.Err() != nil {
		l.dropWindow(w)
	}
	return nil
}

// firstReads bounds the reads that may take frames when a window is opened.
const firstReads = 3

// dropWindow ends direct reads of the server's memory.
func (l *line) dropWindow(w *window) {
	if w == nil {
		return
	}
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		w.reader.close()
	}
	w.mu.Unlock()
	l.window.CompareAndSwap(w, nil) // last, so that another caller waits until nothing lands any more
}

// Windows that do not open are tried again at growing intervals: a wire that does not let its ends copy
// may be another one later, and a program that a NIC runs may end.
const (
	firstOpening = time.Second
	lastOpening  = time.Minute
)

// tryWindow opens the window, if there is none and it is time. The keeper calls it.
func (l *line) tryWindow(ctx context.Context) {
	if l.window.Load() == nil && !time.Now().Before(l.opens) && l.openWindow(ctx) != nil {
		l.wait = max(firstOpening, min(2*l.wait, lastOpening))
		l.opens = time.Now().Add(l.wait)
	}
}

// keeper connects again and again with a server or host.
type keeper struct {
	now  atomic.Pointer[line] // nil while there is no connection
	wake chan struct{}        // it looks again
}

func newKeeper() keeper { return keeper{wake: make(chan struct{}, 1)} }

// How one that is away is looked for: at growing intervals.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
)

// keep dials whenever there is no connection, and asks whether the other end lives at intervals while there is one, until
// ctx ends.
func (k *keeper) keep(ctx context.Context, interval time.Duration, dial func(context.Context) error, ask func(context.Context, *line) error) {
	wait := firstRetry
	for {
		var err error
		if l := k.now.Load(); l == nil {
			err = dial(ctx)
		} else {
			err = ask(ctx, l)
		}
		next, wake := interval, k.wake
		if err != nil {
			if next = wait; wait == firstRetry {
				wake = nil // calls that wait ask again at once
			}
			wait = min(2*wait, lastRetry)
		} else {
			wait = firstRetry
		}
		select {
		case <-ctx.Done():
			if l := k.now.Swap(nil); l != nil {
				l.close()
			}
			return
		case <-time.After(next):
		case <-wake: // a call waits for it
			wait = firstRetry
		}
	}
}

func (k *keeper) look() { notify(k.wake) }

// changes tells the calls that wait that a server is connected again, or the configuration has changed.
type changes struct {
	mu   sync.Mutex
	next chan struct{}
}

// watch returns a channel that is closed at the next change. Call it before checking the condition, or a
// change may be missed.
func (c *changes) watch() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
