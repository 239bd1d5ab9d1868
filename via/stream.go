package via

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Stream is a reliable Conn as a stream of bytes: a net.Conn. Conn.Stream makes it.
//
// Writes are cut into messages. A read returns what is left of the message that came
// first; io.EOF says that the other side has ended in order (Close or CloseWrite), and
// that all it wrote has been read. Any other end is an error.
type Stream struct {
	c *Conn

	reading, writing sync.Mutex
	read, write      deadline
	rest             []byte // of the message that is held
	buffer           []byte // acquired and not posted
	receive, acquire func(context.Context) error

	// The memory goes with the last call in progress.
	mu     sync.Mutex
	calls  int
	closed bool
}

var (
	_ net.Conn      = (*Stream)(nil)
	_ io.ReaderFrom = (*Stream)(nil)
	_ io.WriterTo   = (*Stream)(nil)
)

// Stream makes a stream of the connection, which must not be used otherwise from then
// on. It fails with ErrInvalidReliability if the connection is unreliable.
func (c *Conn) Stream() (*Stream, error) {
	if !c.reliable {
		return nil, c.nic.Refuse("make stream", ErrInvalidReliability, "create the connection with ReliableDelivery", "the connection is unreliable")
	}
	s := &Stream{c: c}
	s.read.init()
	s.write.init()
	s.receive = func(ctx context.Context) (err error) {
		s.rest, err = c.Receive(ctx)
		return err
	}
	s.acquire = func(ctx context.Context) (err error) {
		s.buffer, err = c.Acquire(ctx)
		return err
	}
	return s, nil
}

// Conn is the connection that carries the stream.
func (s *Stream) Conn() *Conn { return s.c }

// enter counts a call that uses buffers; it fails once the stream is closed.
func (s *Stream) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.calls++
	return nil
}

// leave ends a call, which failed with err. The last one after Close frees the memory.
func (s *Stream) leave(op string, err error) error {
	s.mu.Lock()
	s.calls--
	last := s.closed && s.calls == 0
	s.mu.Unlock()
	if last {
		if ferr := s.c.free(); err == nil {
			err = ferr
		}
	}
	return s.error(op, err)
}

// Read reads up to len(p) bytes, at least one unless len(p) is 0.
func (s *Stream) Read(p []byte) (int, error) {
	if err := s.enter(); err != nil {
		return 0, s.error("read", err)
	}
	s.reading.Lock()
	n, err := s.readInto(p)
	s.reading.Unlock()
	return n, s.leave("read", err)
}

func (s *Stream) readInto(p []byte) (int, error) {
	if err := s.read.over(); err != nil || len(p) == 0 {
		return 0, err
	}
	if err := s.fill(); err != nil {
		return 0, err
	}
	n := copy(p, s.rest)
	s.consume(n)
	return n, nil
}

// fill waits for a message that is not empty, unless there is a rest.
func (s *Stream) fill() error {
	for len(s.rest) == 0 {
		if err := s.read.wait(s.receive); err != nil {
			return err
		}
		if len(s.rest) == 0 {
			if err := s.c.Release(); err != nil {
				return err
			}
		}
	}
	return nil
}

// consume drops the first n bytes of the rest.
func (s *Stream) consume(n int) {
	if s.rest = s.rest[n:]; len(s.rest) > 0 {
		return
	}
	s.rest = nil
	// What was read is whole. If the connection has broken, the next read says so.
	_ = s.c.Release()
}

// WriteTo writes to w what is read until the end, straight from registered memory.
func (s *Stream) WriteTo(w io.Writer) (int64, error) {
	if err := s.enter(); err != nil {
		return 0, s.error("read", err)
	}
	s.reading.Lock()
	total, err, sink := s.drain(w)
	s.reading.Unlock()
	if err == io.EOF {
		err = nil
	}
	if err = s.leave("read", err); err == nil {
		err = sink
	}
	return total, err
}

// drain tells errors of the stream from those of w.
func (s *Stream) drain(w io.Writer) (total int64, err, sink error) {
	for sink == nil {
		if err := s.read.over(); err != nil {
			return total, err, nil
		}
		if err := s.fill(); err != nil {
			return total, err, nil
		}
		var n int
		n, sink = w.Write(s.rest)
		n = min(max(n, 0), len(s.rest))
		if sink == nil && n < len(s.rest) {
			sink = io.ErrShortWrite
		}
		total += int64(n)
		s.consume(n)
	}
	return total, nil, sink
}

// Write writes p. It returns when p is on its way.
func (s *Stream) Write(p []byte) (int, error) {
	if err := s.enter(); err != nil {
		return 0, s.error("write", err)
	}
	s.writing.Lock()
	total, err := s.writeAll(p)
	s.writing.Unlock()
	return total, s.leave("write", err)
}

func (s *Stream) writeAll(p []byte) (total int, err error) {
	if err := s.write.over(); err != nil {
		return 0, err
	}
	for total < len(p) {
		if err := s.write.wait(s.acquire); err != nil {
			return total, err
		}
		n := copy(s.buffer, p[total:])
		if err := s.c.Post(n); err != nil {
			return total, err
		}
		total += n
	}
	return total, nil
}

// ReadFrom writes what it reads from r until its end, straight into registered memory.
func (s *Stream) ReadFrom(r io.Reader) (int64, error) {
	if err := s.enter(); err != nil {
		return 0, s.error("write", err)
	}
	s.writing.Lock()
	total, err, source := s.feed(r)
	s.writing.Unlock()
	if err = s.leave("write", err); err == nil && source != io.EOF {
		err = source
	}
	return total, err
}

// feed tells errors of the stream from those of r.
func (s *Stream) feed(r io.Reader) (total int64, err, source error) {
	for source == nil {
		if err := s.write.over(); err != nil {
			return total, err, nil
		}
		if err := s.write.wait(s.acquire); err != nil {
			return total, err, nil
		}
		var n int
		if n, source = r.Read(s.buffer); n > 0 {
			if err := s.c.Post(n); err != nil {
				return total, err, nil
			}
			total += int64(n)
		}
	}
	return total, nil, source
}

// CloseWrite ends the writing: the other side reads io.EOF after what was written.
// Reading goes on.
func (s *Stream) CloseWrite() error {
	if err := s.enter(); err != nil {
		return s.error("close", err)
	}
	s.writing.Lock()
	err := s.write.wait(s.c.CloseSend)
	s.writing.Unlock()
	return s.leave("close", err)
}

// Close ends the stream in order: what was written arrives, and then io.EOF. Calls in
// progress end with net.ErrClosed. If the other side reads nothing for 2 s while something waits
// for it, Close drops that and says so: Conn.Flush before waits longer. A second Close does
// nothing.
func (s *Stream) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.calls++
	s.mu.Unlock()
	s.read.close()
	s.write.close()
	if s.c.closed.Swap(true) {
		return s.leave("close", nil)
	}
	return s.leave("close", s.c.shut())
}

// LocalAddr is this end's address.
func (s *Stream) LocalAddr() net.Addr { return s.c.LocalAddr() }

// RemoteAddr is the other end's address.
func (s *Stream) RemoteAddr() net.Addr { return s.c.RemoteAddr() }

// SetDeadline sets when reads and writes fail with os.ErrDeadlineExceeded, those in
// progress too. The zero time is never.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline is SetDeadline for reads.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.error("set", s.read.set(t)) }

// SetWriteDeadline is SetDeadline for writes.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.error("set", s.write.set(t)) }

// error makes a net.OpError of what is one; io.EOF stays as it is.
func (s *Stream) error(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if errors.Is(err, ErrClosed) {
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: s.c.LocalAddr().Network(), Source: s.c.LocalAddr(), Addr: s.c.RemoteAddr(), Err: err}
}

// deadline ends the calls of one direction: at a time, when that is set anew, or when
// the stream is closed.
type deadline struct {
	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelCauseFunc
	at     time.Time
	stop   context.CancelFunc // of the timer
}

// errMoved ends the waiting for a deadline that has been set anew.
var errMoved = errors.New("the deadline has been set anew")

func (d *deadline) init() { d.ctx, d.cancel = context.WithCancelCause(context.Background()) }

func (d *deadline) set(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if errors.Is(context.Cause(d.ctx), net.ErrClosed) {
		return net.ErrClosed
	}
	if t.IsZero() && d.at.IsZero() {
		return nil
	}
	d.cancel(errMoved)
	if d.stop != nil {
		d.stop()
		d.stop = nil
	}
	d.init()
	if d.at = t; !t.IsZero() {
		d.ctx, d.stop = context.WithDeadlineCause(d.ctx, t, os.ErrDeadlineExceeded)
	}
	return nil
}

func (d *deadline) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel(net.ErrClosed)
	if d.stop != nil {
		d.stop()
	}
}

func (d *deadline) context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ctx
}

// over is why calls fail at once, nil if they do not.
func (d *deadline) over() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return context.Cause(d.ctx)
}

// wait calls f, which waits, until it succeeds, fails for a reason of its own, or the
// deadline has passed.
func (d *deadline) wait(f func(context.Context) error) error {
	for {
		ctx := d.context()
		err := f(ctx)
		if err == nil || ctx.Err() == nil {
			return err
		}
		if cause := context.Cause(ctx); cause != errMoved {
			return cause
		}
	}
}
