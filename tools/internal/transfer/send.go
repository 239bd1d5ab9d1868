package transfer

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Source is a file to be sent. Reading must yield exactly its Size, if that is known.
type Source struct {
	Offer
	// Reader is read by a goroutine of its own. A Read that blocks for ever keeps that
	// goroutine, but not Send.
	Reader io.Reader
}

// Result describes a transfer that has ended.
type Result struct {
	Bytes   uint64  `json:"bytes"`
	SHA256  string  `json:"sha256"`
	Seconds float64 `json:"seconds"` // from the offer to the answer
	Rate    float64 `json:"mb_per_s" help:"10^6 bytes"`
	// Unconfirmed is set by Receive if the file is complete and stored but the
	// sender may not have been told.
	Unconfirmed bool `json:"-"`
}

// resultSince is of a transfer that ends now.
func resultSince(start time.Time, e ending) Result {
	r := Result{Bytes: uint64(e.Bytes), SHA256: e.SHA256, Seconds: time.Since(start).Seconds()}
	if r.Seconds > 0 {
		r.Rate = float64(e.Bytes) / 1e6 / r.Seconds
	}
	return r
}

// linger bounds how long a side waits for the other one to end the stream after the answer: each
// of them stays to repeat its last acknowledgement, should that be lost.
const linger = time.Second

// Send sends one file over c and waits for the answer. progress, if not nil, is called with the
// number of bytes of each chunk that was written to c. On failure the other side is told, if it
// is still there. The caller closes c.
func Send(ctx context.Context, c Conn, src Source, progress func(n int)) (Result, error) {
	if err := src.check(); err != nil {
		return Result{}, err
	}
	start := time.Now()
	s := sender{conn: c, progress: progress, answered: make(chan struct{})}
	sending, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in := bufio.NewReaderSize(c, maxLine)
	go func() {
		defer close(s.answered)
		s.answer, s.answerErr = readEnding(in)
		// The receiver may have given up, or be gone, while the file yields nothing.
		cancel(cmp.Or(s.answerErr, malformed("an answer before the end")))
	}()
	mine, err := s.send(sending, src)
	if err = s.outcome(ctx, mine, err); err != nil {
		return Result{}, err
	}
	r := resultSince(start, mine)
	if c.SetDeadline(time.Now().Add(linger)) == nil && c.CloseWrite() == nil {
		_, _ = in.ReadByte()
	}
	return r, nil
}

type sender struct {
	conn      Conn
	progress  func(n int)
	broken    error         // of a write
	answered  chan struct{} // closed once answer and answerErr are set
	answer    ending
	answerErr error
}

// send sends the file, and the line that ends it.
func (s *sender) send(ctx context.Context, src Source) (ending, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetWriteDeadline(time.Now().Add(abortTimeout)) })
	defer stop()
	if err := s.write(line(src.Offer)); err != nil {
		return ending{}, err
	}
	mine, err := s.stream(ctx, src)
	last := mine
	var remote *RemoteError
	switch {
	case s.broken != nil || errors.Is(err, ErrPeerLost) || errors.As(err, &remote):
		return mine, err
	case err != nil:
		last = endingOf(err)
	}
	if werr := s.write(append(make([]byte, prefix), line(last)...)); err == nil {
		err = werr
	}
	return mine, err
}

// stream sends the content.
func (s *sender) stream(ctx context.Context, src Source) (e ending, err error) {
	r, w := io.Pipe()
	defer r.Close()
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	defer stop()
	digest := sha256.New()
	go func() {
		_, err := io.CopyBuffer(io.MultiWriter(digest, w), struct{ io.Reader }{io.LimitReader(src.Reader, src.limit()+1)}, make([]byte, chunk-prefix))
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrSource, err)
		}
		_ = w.CloseWithError(err)
	}()
	buf := make([]byte, chunk)
	for {
		n, err := r.Read(buf[prefix:])
		switch {
		case err == io.EOF:
			e.SHA256 = fmt.Sprintf("%x", digest.Sum(nil))
			return e, src.complete(e.Bytes)
		case err != nil:
			return e, err
		case e.Bytes+int64(n) > src.limit():
			return e, src.complete(e.Bytes + int64(n))
		}
		binary.LittleEndian.PutUint32(buf, uint32(n))
		if err := s.write(buf[:prefix+n]); err != nil {
			return e, err
		}
		e.Bytes += int64(n)
		if s.progress != nil {
			s.progress(n)
		}
	}
}

func (s *sender) write(b []byte) error {
	_, s.broken = s.conn.Write(b)
	return s.broken
}

// outcome waits for the answer, if there will be one, and returns the error that says most: the
// receiver's word comes before the break of the connection that follows it.
func (s *sender) outcome(ctx context.Context, mine ending, err error) error {
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Now()) })
	defer stop()
	switch {
	case s.broken != nil:
		_ = s.conn.SetReadDeadline(time.Now().Add(abortTimeout))
	case err != nil:
		_ = s.conn.SetReadDeadline(time.Now())
	}
	<-s.answered
	switch {
	case err != nil && s.broken == nil:
		return err
	case s.broken != nil && (s.answerErr == nil || errors.Is(s.answerErr, os.ErrDeadlineExceeded)):
		s.answerErr = Lost(s.broken)
	}
	switch {
	case errors.Is(s.answerErr, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return context.Cause(ctx)
	case s.answerErr == nil && s.answer != mine:
		return malformed("receipt for another file")
	}
	return s.answerErr
}
