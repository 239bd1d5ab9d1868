package transfer

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Sink stores a file that arrives.
type Sink interface {
	// Write is called by a goroutine of its own.
	io.Writer
	// Commit makes what was written durable and visible, all or nothing.
	Commit() error
	// Discard leaves no trace of what was written. It may be called while a
	// Write is still blocked, and after a failed Commit.
	Discard() error
}

// Receive receives one file over c. open is called with the offer and returns
// where to store the file; its errors refuse the offer. progress, if not nil,
// is called with the number of bytes of each piece that arrived. On failure the
// sink is discarded and the other side told, if it is still there. The caller closes c.
func Receive(ctx context.Context, c Conn, open func(Offer) (Sink, error), progress func(n int)) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Now()) })
	defer stop()
	in := bufio.NewReaderSize(c, maxLine)
	start, mine, err := receive(ctx, cancel, chunks{in: in, progress: progress}, open)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	_ = c.SetWriteDeadline(time.Now().Add(abortTimeout))
	if err != nil {
		var remote *RemoteError
		if !errors.Is(err, ErrPeerLost) && !errors.As(err, &remote) {
			_, _ = c.Write(line(endingOf(err))) // the connection is closed next
		}
		return Result{}, err
	}
	// The file is there: nothing may fail any more. The sender ends the stream when it has the answer.
	r := resultSince(start, mine)
	_, err = c.Write(line(mine))
	if err == nil {
		timer := time.AfterFunc(10*linger, func() { _ = c.SetReadDeadline(time.Now()) })
		_, err = in.ReadByte()
		timer.Stop()
	}
	r.Unconfirmed = !errors.Is(err, io.EOF)
	return r, nil
}

// receive takes an offer and the file, and commits that if it equals what the sender sent.
func receive(ctx context.Context, cancel context.CancelCauseFunc, c chunks, open func(Offer) (Sink, error)) (start time.Time, mine ending, err error) {
	c.offer = new(Offer)
	if err := readLine(c.in, c.offer); err != nil {
		return start, mine, err
	}
	if err := c.offer.check(); err != nil {
		return start, mine, err
	}
	sink, err := open(*c.offer)
	if err != nil {
		return start, mine, sinkError(err)
	}
	start = time.Now()
	mine, err = c.store(ctx, cancel, sink)
	if err == nil {
		if err = sink.Commit(); err != nil {
			err = sinkError(err)
		}
	}
	if err != nil {
		// What failed first matters more than what the clean-up says.
		_ = sink.Discard()
	}
	return start, mine, err
}

// store writes the file to the sink, in a goroutine of its own, and checks it.
func (c *chunks) store(ctx context.Context, cancel context.CancelCauseFunc, sink Sink) (mine ending, err error) {
	r, w := io.Pipe()
	defer func() { _ = w.CloseWithError(err) }()
	stop := context.AfterFunc(ctx, func() { _ = r.CloseWithError(context.Cause(ctx)) })
	defer stop()
	digest, stored := sha256.New(), make(chan struct{})
	go func() {
		if _, err := io.CopyBuffer(io.MultiWriter(digest, sink), struct{ io.Reader }{r}, make([]byte, chunk)); err != nil {
			cancel(sinkError(err)) // ends the reading, too
			return
		}
		close(stored)
	}()
	if mine.Bytes, err = io.CopyBuffer(w, c, make([]byte, chunk)); err != nil {
		return mine, err
	}
	theirs, err := readEnding(c.in)
	switch {
	case err != nil:
		return mine, err
	case theirs.Bytes != mine.Bytes:
		return mine, malformed("end after %d bytes says %d", mine.Bytes, theirs.Bytes)
	}
	if err := c.offer.complete(mine.Bytes); err != nil {
		return mine, err
	}
	_ = w.Close()
	select {
	case <-stored:
	case <-ctx.Done():
		return mine, context.Cause(ctx)
	}
	if mine.SHA256 = fmt.Sprintf("%x", digest.Sum(nil)); mine.SHA256 != theirs.SHA256 {
		return mine, fmt.Errorf("%w: %s instead of %s", ErrDigest, mine.SHA256, theirs.SHA256)
	}
	return mine, nil
}

// sinkError marks an error as the sink's, unless it says more itself.
func sinkError(err error) error {
	if errors.Is(err, ErrExists) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrSink, err)
}
