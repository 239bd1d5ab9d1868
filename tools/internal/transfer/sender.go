package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Result describes a transfer that has ended.
type Result struct {
	Bytes   uint64  `json:"bytes"`
	SHA256  string  `json:"sha256"`
	Seconds float64 `json:"seconds"` // from the accept to the receipt
	Rate    float64 `json:"mb_per_s" help:"10^6 bytes"`
	// Unconfirmed is set by Receive if the file is complete and stored but the
	// sender may not have been told.
	Unconfirmed bool `json:"-"`
}

// resultSince is of a transfer that ends now.
func resultSince(start time.Time, bytes uint64, digest [DigestSize]byte) Result {
	r := Result{Bytes: bytes, SHA256: fmt.Sprintf("%x", digest), Seconds: time.Since(start).Seconds()}
	if r.Seconds > 0 {
		r.Rate = float64(bytes) / 1e6 / r.Seconds
	}
	return r
}

// glance is the time between two looks at the link of a sender that waits for its file.
const glance = 50 * time.Millisecond

// linger bounds how long a sender that has its receipt stays to repeat the
// acknowledgement of it, should that be lost.
const linger = time.Second

// Send sends one file over l and waits for the receipt. progress, if not nil,
// is called with the number of bytes of each chunk that was handed to the link.
// On failure the other side is told, if it is still there.
func Send(ctx context.Context, l Link, src Source, progress func(n int)) (Result, error) {
	if err := checkLink(l); err != nil {
		return Result{}, err
	}
	s := sender{link: l, src: src, progress: progress}
	r, err := s.run(ctx)
	if err != nil {
		err = remoteWord(ctx, l, err)
		explain(ctx, l, err)
		return Result{}, err
	}
	s.linger(ctx)
	return r, nil
}

type sender struct {
	link     Link
	src      Source
	progress func(n int)
	sent     uint64
}

func (s *sender) run(ctx context.Context) (Result, error) {
	if err := post(ctx, s.link, &Message{Kind: KindOffer, Size: s.src.Size, Mode: s.src.Mode, Name: s.src.Name}); err != nil {
		return Result{}, err
	}
	if _, err := receive(ctx, s.link, KindAccept); err != nil {
		return Result{}, err
	}
	start := time.Now()
	digest, err := s.stream(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := post(ctx, s.link, &Message{Kind: KindEnd, Size: s.sent, Digest: digest}); err != nil {
		return Result{}, err
	}
	receipt, err := receive(ctx, s.link, KindReceipt)
	if err != nil {
		return Result{}, err
	}
	if receipt.Size != s.sent || receipt.Digest != digest {
		return Result{}, malformed("receipt for another file")
	}
	return resultSince(start, s.sent, digest), nil
}

// stream sends the content and returns its digest.
func (s *sender) stream(ctx context.Context) ([DigestSize]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	file := readAhead(ctx, s.src.Reader, s.link.MaxMessage()-PrefixSize)
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for {
		select {
		case b := <-file.full:
			if err := s.chunk(ctx, b.data); err != nil {
				return [DigestSize]byte{}, err
			}
			switch {
			case errors.Is(b.err, io.EOF):
				return file.sum(), s.complete()
			case b.err != nil:
				return [DigestSize]byte{}, b.err
			}
			file.recycle(b)
		case <-tick.C:
		case <-ctx.Done():
			return [DigestSize]byte{}, context.Cause(ctx)
		}
		if err := s.glance(); err != nil {
			return [DigestSize]byte{}, err
		}
	}
}

func (s *sender) chunk(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	limit := min(s.src.Size, MaxSize)
	if uint64(len(data)) > limit-s.sent {
		return fmt.Errorf("%w: there are more than %d bytes", ErrSize, limit)
	}
	buf, err := s.link.Acquire(ctx)
	if err != nil {
		return err
	}
	PutChunkPrefix(buf, s.sent)
	copy(buf[PrefixSize:], data)
	if err := s.link.Post(PrefixSize + len(data)); err != nil {
		return err
	}
	s.sent += uint64(len(data))
	if s.progress != nil {
		s.progress(len(data))
	}
	return nil
}

func (s *sender) complete() error {
	if s.src.Size != UnknownSize && s.sent != s.src.Size {
		return fmt.Errorf("%w: it ended after %d of %d bytes", ErrSize, s.sent, s.src.Size)
	}
	return nil
}

// glance looks whether the receiver has given up. While chunks go out it has
// nothing else to say.
func (s *sender) glance() error {
	b, err := s.link.TryReceive()
	if err != nil || b == nil {
		return err
	}
	m, err := Parse(b)
	if rerr := s.link.Release(); err == nil {
		err = rerr
	}
	if err != nil {
		return err
	}
	return m.expect(KindAbort)
}

// linger waits for the receiver to disconnect: it does so once it knows that
// the receipt has arrived.
func (s *sender) linger(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, linger)
	defer cancel()
	for {
		if _, err := s.link.Receive(ctx); err != nil || s.link.Release() != nil {
			return
		}
	}
}
