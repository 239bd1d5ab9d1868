package transfer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
)

// fileWriter writes behind the link and computes the digest. As in fileReader
// its memory is its own.
type fileWriter struct {
	full   chan []byte
	free   chan []byte
	done   chan struct{} // closed when everything has been written
	digest hash.Hash     // may be used after done
}

// writeBehind starts a writer. When writing fails it cancels ctx with the error.
func writeBehind(ctx context.Context, cancel context.CancelCauseFunc, w io.Writer, size int) *fileWriter {
	f := &fileWriter{
		full:   make(chan []byte, blocks),
		free:   make(chan []byte, blocks),
		done:   make(chan struct{}),
		digest: sha256.New(),
	}
	for range blocks {
		f.free <- make([]byte, size)
	}
	go f.run(ctx, cancel, w)
	return f
}

func (f *fileWriter) run(ctx context.Context, cancel context.CancelCauseFunc, w io.Writer) {
	for {
		select {
		case b, more := <-f.full:
			if !more {
				close(f.done)
				return
			}
			f.digest.Write(b)
			if _, err := w.Write(b); err != nil {
				cancel(fmt.Errorf("%w: %w", ErrSink, err))
				return
			}
			f.free <- b[:cap(b)]
		case <-ctx.Done():
			return
		}
	}
}

// write hands over a copy of data, at most a block.
func (f *fileWriter) write(ctx context.Context, data []byte) error {
	select {
	case b := <-f.free:
		f.full <- b[:copy(b, data)]
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finish waits until everything has been written and returns the digest.
func (f *fileWriter) finish(ctx context.Context) (d [DigestSize]byte, err error) {
	close(f.full)
	select {
	case <-f.done:
		f.digest.Sum(d[:0])
		return d, nil
	case <-ctx.Done():
		return d, context.Cause(ctx)
	}
}
