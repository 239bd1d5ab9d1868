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

// blocks is how many blocks may lie between the link and the file: enough to
// overlap their work.
const blocks = 4

// block is a piece of the file. The last one of a source carries err, io.EOF
// if all went well.
type block struct {
	data []byte
	err  error
}

// fileReader reads ahead of the link and computes the digest. Its memory is its
// own, not the NIC's, so that a Read that never returns does no harm after the
// NIC has been closed.
type fileReader struct {
	full   chan block
	free   chan []byte
	digest hash.Hash // may be used after the last block has been taken
}

func readAhead(ctx context.Context, r io.Reader, size int) *fileReader {
	f := &fileReader{
		full:   make(chan block, blocks),
		free:   make(chan []byte, blocks),
		digest: sha256.New(),
	}
	for range blocks {
		f.free <- make([]byte, size)
	}
	go f.run(ctx, r)
	return f
}

func (f *fileReader) run(ctx context.Context, r io.Reader) {
	for {
		var buf []byte
		select {
		case buf = <-f.free:
		case <-ctx.Done():
			return
		}
		n, err := r.Read(buf)
		f.digest.Write(buf[:n])
		if err != nil && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: %w", ErrSource, err)
		}
		// There are as many places in full as there are buffers.
		f.full <- block{data: buf[:n], err: err}
		if err != nil {
			return
		}
	}
}

// recycle gives a block's memory back.
func (f *fileReader) recycle(b block) { f.free <- b.data[:cap(b.data)] }

func (f *fileReader) sum() (d [DigestSize]byte) {
	f.digest.Sum(d[:0])
	return d
}
