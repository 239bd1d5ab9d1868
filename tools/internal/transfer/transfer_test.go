package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const small = transfer.MinMessage

func source(data []byte) transfer.Source {
	return transfer.Source{Name: "file", Size: uint64(len(data)), Mode: 0o640, Reader: bytes.NewReader(data)}
}

type outcome struct {
	res transfer.Result
	err error
}

// exchange runs both ends.
func exchange(ctx context.Context, src transfer.Source, sink *memory, max int) (sent, got outcome, offer transfer.Offer) {
	a, b := newPipe(max)
	done := make(chan struct{})
	go func() {
		defer close(done)
		sent.res, sent.err = transfer.Send(ctx, a, src, nil)
		a.disconnect()
	}()
	got.res, got.err = transfer.Receive(ctx, b, func(o transfer.Offer) (transfer.Sink, error) {
		offer = o
		return sink, nil
	}, nil)
	b.disconnect()
	<-done
	return sent, got, offer
}

func TestFileArrives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 4*small).Draw(t, "data")
		max := rapid.IntRange(small, 2*small).Draw(t, "max")
		src := source(data)
		if rapid.Bool().Draw(t, "stream") {
			src.Size = transfer.UnknownSize
		}
		if rapid.Bool().Draw(t, "dribble") {
			src.Reader = iotest.OneByteReader(src.Reader)
		}
		if rapid.Bool().Draw(t, "data with EOF") {
			src.Reader = iotest.DataErrReader(src.Reader)
		}
		sink := &memory{}
		sent, got, offer := exchange(context.Background(), src, sink, max)
		if sent.err != nil || got.err != nil {
			t.Fatalf("send %v, receive %v", sent.err, got.err)
		}
		if !bytes.Equal(sink.data, data) || !sink.committed || sink.discarded {
			t.Fatalf("%d of %d bytes, committed %v, discarded %v", len(sink.data), len(data), sink.committed, sink.discarded)
		}
		want := fmt.Sprintf("%x", sha256.Sum256(data))
		for _, r := range []transfer.Result{sent.res, got.res} {
			if r.SHA256 != want || r.Bytes != uint64(len(data)) || r.Unconfirmed {
				t.Fatalf("result %+v", r)
			}
		}
		if offer != (transfer.Offer{Name: "file", Size: src.Size, Mode: 0o640}) {
			t.Fatalf("offer %+v", offer)
		}
	})
}

func TestProgressCountsEveryByte(t *testing.T) {
	a, b := newPipe(small)
	data := make([]byte, 10*small)
	var sent, got int
	done := make(chan error)
	go func() {
		_, err := transfer.Send(context.Background(), a, source(data), func(n int) { sent += n })
		done <- err
	}()
	_, err := transfer.Receive(context.Background(), b, func(transfer.Offer) (transfer.Sink, error) { return &memory{}, nil }, func(n int) { got += n })
	b.disconnect()
	if serr := <-done; err != nil || serr != nil {
		t.Fatal(err, serr)
	}
	if sent != len(data) || got != len(data) {
		t.Errorf("progress of %d and %d for %d bytes", sent, got, len(data))
	}
}

// TestOneSideFails checks what both sides say when one of them cannot go on.
func TestOneSideFails(t *testing.T) {
	data := make([]byte, 20*small)
	disk := &fs.PathError{Op: "write", Path: "/secret/path", Err: syscall.ENOSPC}
	for name, c := range map[string]struct {
		src        transfer.Source
		sink       *memory
		sent, got  error
		sentSays   string
		neverSays  string
		reasonSent transfer.Reason
	}{
		"file grew":         {src: transfer.Source{Name: "f", Size: 100, Reader: bytes.NewReader(data)}, sink: &memory{}, sent: transfer.ErrSize, got: transfer.ErrSize},
		"file shrank":       {src: transfer.Source{Name: "f", Size: uint64(len(data)) + 1, Reader: bytes.NewReader(data)}, sink: &memory{}, sent: transfer.ErrSize, got: transfer.ErrSize},
		"read error":        {src: transfer.Source{Name: "f", Size: uint64(len(data)), Reader: io.MultiReader(bytes.NewReader(data[:3000]), iotest.ErrReader(syscall.EIO))}, sink: &memory{}, sent: syscall.EIO, got: &transfer.RemoteError{}},
		"disk full":         {src: source(data), sink: &memory{writeErr: disk}, sent: &transfer.RemoteError{}, got: syscall.ENOSPC, sentSays: "no space left", neverSays: "secret"},
		"rename fails":      {src: source(data), sink: &memory{commitErr: disk}, sent: &transfer.RemoteError{}, got: syscall.ENOSPC, sentSays: "no space left", neverSays: "secret"},
		"appeared meantime": {src: source(data), sink: &memory{commitErr: transfer.ErrExists}, sent: transfer.ErrExists, got: transfer.ErrExists},
	} {
		t.Run(name, func(t *testing.T) {
			sent, got, _ := exchange(context.Background(), c.src, c.sink, small)
			for side, p := range map[string]struct{ got, want error }{"send": {sent.err, c.sent}, "receive": {got.err, c.got}} {
				var remote *transfer.RemoteError
				if _, ok := p.want.(*transfer.RemoteError); ok && errors.As(p.got, &remote) {
					continue
				}
				if !errors.Is(p.got, p.want) {
					t.Errorf("%s: got %v, want %v", side, p.got, p.want)
				}
			}
			if sent.err != nil && !strings.Contains(sent.err.Error(), c.sentSays) {
				t.Errorf("sender says %q without %q", sent.err, c.sentSays)
			}
			if c.neverSays != "" && strings.Contains(sent.err.Error(), c.neverSays) {
				t.Errorf("sender learnt %q: %v", c.neverSays, sent.err)
			}
			if c.sink.committed || !c.sink.discarded {
				t.Errorf("committed %v, discarded %v", c.sink.committed, c.sink.discarded)
			}
		})
	}
}

func TestReceiverRefusesOffer(t *testing.T) {
	a, b := newPipe(small)
	done := make(chan error)
	go func() {
		_, err := transfer.Send(context.Background(), a, source([]byte("x")), nil)
		done <- err
	}()
	_, err := transfer.Receive(context.Background(), b, func(transfer.Offer) (transfer.Sink, error) { return nil, transfer.ErrExists }, nil)
	if !errors.Is(err, transfer.ErrExists) {
		t.Errorf("receiver: %v", err)
	}
	b.disconnect()
	if err := <-done; !errors.Is(err, transfer.ErrExists) {
		t.Errorf("sender: %v", err)
	}
}

// TestSenderWithBlockedFile checks that a sender whose file yields nothing more
// still notices that the receiver has gone, and that it can be interrupted.
func TestSenderWithBlockedFile(t *testing.T) {
	for name, end := range map[string]func(b *pipe, cancel context.CancelFunc){
		"receiver gone": func(b *pipe, _ context.CancelFunc) { b.disconnect() },
		"interrupted":   func(_ *pipe, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newPipe(small)
			r, w := io.Pipe()
			defer w.Close()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan error)
			go func() {
				_, err := transfer.Send(ctx, a, transfer.Source{Name: "f", Size: transfer.UnknownSize, Reader: r}, nil)
				done <- err
			}()
			b.expect(t, transfer.KindOffer)
			b.say(encode(t, transfer.Message{Kind: transfer.KindAccept}))
			w.Write([]byte("some"))
			b.expect(t, transfer.KindChunk)
			end(b, cancel)
			err := <-done
			if !errors.Is(err, transfer.ErrPeerLost) && !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestReceiverWithBlockedOutput checks that one can be interrupted.
func TestReceiverWithBlockedOutput(t *testing.T) {
	a, b := newPipe(small)
	sink := &memory{blocked: make(chan struct{})}
	defer close(sink.blocked)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := transfer.Receive(ctx, b, func(transfer.Offer) (transfer.Sink, error) { return sink, nil }, nil)
		done <- err
	}()
	a.say(encode(t, valid["stream"]))
	a.expect(t, transfer.KindAccept)
	for i := range uint64(pipeDepth) {
		a.say(encode(t, transfer.Message{Kind: transfer.KindChunk, Offset: i, Data: []byte{1}}))
	}
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !sink.discarded {
		t.Error("not discarded")
	}
	a.expect(t, transfer.KindAbort)
}

func TestUnusableLink(t *testing.T) {
	a, b := newPipe(transfer.MinMessage - 1)
	if _, err := transfer.Send(context.Background(), a, source(nil), nil); err == nil {
		t.Error("sender took it")
	}
	if _, err := transfer.Receive(context.Background(), b, nil, nil); err == nil {
		t.Error("receiver took it")
	}
}
