package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// Offer describes the file that a sender offers.
type Offer struct {
	Name string // a checked base name
	Size uint64 // bytes, or UnknownSize
	Mode fs.FileMode
}

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

// Receive receives one file over l. open is called with the offer and returns
// where to store the file; its errors refuse the offer. progress, if not nil,
// is called with the number of bytes of each chunk that arrived. On failure the
// sink is discarded and the other side told, if it is still there.
func Receive(ctx context.Context, l Link, open func(Offer) (Sink, error), progress func(n int)) (Result, error) {
	if err := checkLink(l); err != nil {
		return Result{}, err
	}
	r := receiver{link: l, progress: progress}
	res, err := r.run(ctx, open)
	if err != nil {
		err = remoteWord(ctx, l, err)
		explain(ctx, l, err)
		return Result{}, err
	}
	return res, nil
}

type receiver struct {
	link     Link
	progress func(n int)
	offer    Offer
	got      uint64
}

func (r *receiver) run(ctx context.Context, open func(Offer) (Sink, error)) (Result, error) {
	m, err := receive(ctx, r.link, KindOffer)
	if err != nil {
		return Result{}, err
	}
	r.offer = Offer{Name: m.Name, Size: m.Size, Mode: m.Mode}
	sink, err := open(r.offer)
	if err != nil {
		return Result{}, sinkError(err)
	}
	start := time.Now()
	digest, err := r.store(ctx, sink)
	if err != nil {
		// What failed first matters more than what the clean-up says.
		_ = sink.Discard()
		return Result{}, err
	}
	res := resultSince(start, r.got, digest)
	// From here on the file is there: nothing may fail any more.
	err = post(ctx, r.link, &Message{Kind: KindReceipt, Size: r.got, Digest: digest})
	if err == nil {
		err = r.link.Flush(ctx)
	}
	res.Unconfirmed = err != nil
	return res, nil
}

// store accepts the offer, stores the content and commits it if it equals what the
// sender sent.
func (r *receiver) store(ctx context.Context, sink Sink) (digest [DigestSize]byte, err error) {
	if err := post(ctx, r.link, &Message{Kind: KindAccept}); err != nil {
		return digest, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := writeBehind(ctx, cancel, sink, r.link.MaxMessage()-PrefixSize)
	end, err := r.stream(ctx, w)
	if err != nil {
		return digest, err
	}
	digest, err = w.finish(ctx)
	if err != nil {
		return digest, err
	}
	if end.Digest != digest {
		return digest, fmt.Errorf("%w: %x instead of %x", ErrDigest, digest, end.Digest)
	}
	if err := sink.Commit(); err != nil {
		return digest, sinkError(err)
	}
	return digest, nil
}

// sinkError marks an error as the sink's, unless it says more itself.
func sinkError(err error) error {
	if errors.Is(err, ErrExists) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrSink, err)
}

// stream takes chunks up to the end message, which it returns.
func (r *receiver) stream(ctx context.Context, w *fileWriter) (Message, error) {
	for {
		b, err := r.link.Receive(ctx)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return Message{}, err
		}
		m, err := Parse(b)
		if err == nil {
			err = m.expect(KindChunk, KindEnd)
		}
		if err == nil {
			err = r.check(&m)
		}
		if err == nil && m.Kind == KindChunk {
			err = r.chunk(ctx, w, m.Data)
		}
		if rerr := r.link.Release(); err == nil {
			err = rerr
		}
		if err != nil || m.Kind == KindEnd {
			return m, err
		}
	}
}

// check compares m with what has arrived so far.
func (r *receiver) check(m *Message) error {
	switch {
	case m.Kind == KindEnd:
		if m.Size != r.got {
			return malformed("end after %d bytes says %d", r.got, m.Size)
		}
		if r.offer.Size != UnknownSize && r.offer.Size != r.got {
			return fmt.Errorf("%w: %d bytes instead of %d", ErrSize, r.got, r.offer.Size)
		}
	case m.Offset != r.got:
		return malformed("chunk for offset %d where %d is due", m.Offset, r.got)
	case uint64(len(m.Data)) > min(r.offer.Size, MaxSize)-r.got:
		return fmt.Errorf("%w: there are more than %d bytes", ErrSize, min(r.offer.Size, MaxSize))
	}
	return nil
}

func (r *receiver) chunk(ctx context.Context, w *fileWriter, data []byte) error {
	if err := w.write(ctx, data); err != nil {
		return err
	}
	r.got += uint64(len(data))
	if r.progress != nil {
		r.progress(len(data))
	}
	return nil
}
