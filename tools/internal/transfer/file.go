package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
)

// Source is a file to be sent.
type Source struct {
	// Name is a base name, see CheckName.
	Name string
	// Size in bytes, or UnknownSize. Reading must yield exactly that much.
	Size uint64
	// Mode holds permission bits.
	Mode fs.FileMode
	// Reader yields the content. It is read by a goroutine of its own. A Read
	// that blocks for ever keeps that goroutine, but not Send.
	Reader io.Reader
}

// blocks may lie between the link and the file at a time: enough to
// overlap their work.
const blocks = 4

// block is a piece of the file. The last one of a source carries err, io.EOF
// if all went well.
type block struct {
	data []byte
	err  error
}

// pipe carries blocks between the link and a goroutine that reads or writes the file, and computes the
// digest there. Its memory is its own, not the NIC's. So a Read or Write that never returns does no harm
// after the NIC has been closed.
type pipe struct {
	full   chan block // has as many places as there are blocks
	free   chan []byte
	digest hash.Hash // may be used when the goroutine has ended
}

func newPipe(size int) pipe {
	p := pipe{full: make(chan block, blocks), free: make(chan []byte, blocks), digest: sha256.New()}
	for range blocks {
		p.free <- make([]byte, size)
	}
	return p
}

// recycle gives a block's memory back.
func (p *pipe) recycle(b block) { p.free <- b.data[:cap(b.data)] }

func (p *pipe) sum() (d [DigestSize]byte) {
	p.digest.Sum(d[:0])
	return d
}

// readAhead reads a file ahead of the link. It has ended when the block with an error has come.
func readAhead(ctx context.Context, r io.Reader, size int) *pipe {
	p := newPipe(size)
	go p.read(ctx, r)
	return &p
}

func (p *pipe) read(ctx context.Context, r io.Reader) {
	for {
		var buf []byte
		select {
		case buf = <-p.free:
		case <-ctx.Done():
			return
		}
		n, err := r.Read(buf)
		p.digest.Write(buf[:n])
		if err != nil && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: %w", ErrSource, err)
		}
		p.full <- block{data: buf[:n], err: err}
		if err != nil {
			return
		}
	}
}

// fileWriter writes a file behind the link.
type fileWriter struct {
	pipe
	done chan struct{} // closed when everything has been written
}

// writeBehind starts a writer. When writing fails it cancels ctx with the error.
func writeBehind(ctx context.Context, cancel context.CancelCauseFunc, w io.Writer, size int) *fileWriter {
	f := &fileWriter{newPipe(size), make(chan struct{})}
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
			f.digest.Write(b.data)
			if _, err := w.Write(b.data); err != nil {
				cancel(fmt.Errorf("%w: %w", ErrSink, err))
				return
			}
			f.recycle(b)
		case <-ctx.Done():
			return
		}
	}
}

// write hands over a copy of data, at most a block.
func (f *fileWriter) write(ctx context.Context, data []byte) error {
	select {
	case b := <-f.free:
		f.full <- block{data: b[:copy(b, data)]}
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
		return f.sum(), nil
	case <-ctx.Done():
		return d, context.Cause(ctx)
	}
}
