package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const small = 1000

func source(data []byte) transfer.Source {
	return transfer.Source{Offer: transfer.Offer{Name: "file", Size: int64(len(data)), Mode: 0o640}, Reader: bytes.NewReader(data)}
}

type outcome struct {
	res transfer.Result
	err error
}

// exchange runs both ends.
func exchange(t testing.TB, src transfer.Source, sink *memory) (sent, got outcome, offer transfer.Offer) {
	a, b := newPipe(t)
	ctx, done := context.Background(), make(chan struct{})
	go func() {
		defer close(done)
		sent.res, sent.err = transfer.Send(ctx, a, src, nil)
		_ = a.Close()
	}()
	got.res, got.err = transfer.Receive(ctx, b, func(o transfer.Offer) (transfer.Sink, error) {
		offer = o
		return sink, nil
	}, nil)
	_ = b.Close()
	<-done
	return sent, got, offer
}

func TestFileArrives(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		data := bytes.Repeat(rapid.SliceOfN(rapid.Byte(), 0, small).Draw(t, "data"), rapid.SampledFrom([]int{1, 2, 600}).Draw(t, "times"))
		src := source(data)
		if rapid.Bool().Draw(t, "stream") {
			src.Size = transfer.UnknownSize
		}
		if len(data) < 10*small && rapid.Bool().Draw(t, "dribble") {
			src.Reader = iotest.OneByteReader(src.Reader)
		}
		if rapid.Bool().Draw(t, "data with EOF") {
			src.Reader = iotest.DataErrReader(src.Reader)
		}
		sink := &memory{}
		sent, got, offer := exchange(outer, src, sink)
		must.Hold(t, sent.err == nil && got.err == nil, "send %v, receive %v", sent.err, got.err)
		if !bytes.Equal(sink.data, data) || !sink.committed || sink.discarded {
			t.Fatalf("%d of %d bytes, committed %v, discarded %v", len(sink.data), len(data), sink.committed, sink.discarded)
		}
		want := fmt.Sprintf("%x", sha256.Sum256(data))
		for _, r := range []transfer.Result{sent.res, got.res} {
			must.Hold(t, r.SHA256 == want && r.Bytes == uint64(len(data)) && !r.Unconfirmed, "result %+v", r)
		}
		must.Be(t, offer, (transfer.Offer{Name: "file", Size: src.Size, Mode: 0o640}), "offer")
	})
}

func TestProgressCountsEveryByte(t *testing.T) {
	a, b := newPipe(t)
	data := make([]byte, 10*small)
	var sent, got int
	done := make(chan error)
	go func() {
		_, err := transfer.Send(context.Background(), a, source(data), func(n int) { sent += n })
		done <- err
	}()
	_, err := transfer.Receive(context.Background(), b, func(transfer.Offer) (transfer.Sink, error) { return &memory{}, nil }, func(n int) { got += n })
	_ = b.Close()
	serr := <-done
	must.Hold(t, err == nil && serr == nil, "%+v %+v", err, serr)
	should.Hold(t, sent == len(data) && got == len(data), "progress of %d and %d for %d bytes", sent, got, len(data))
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
		"file grew":         {src: transfer.Source{Offer: transfer.Offer{Name: "f", Size: 100}, Reader: bytes.NewReader(data)}, sink: &memory{}, sent: transfer.ErrSize, got: transfer.ErrSize},
		"file shrank":       {src: transfer.Source{Offer: transfer.Offer{Name: "f", Size: int64(len(data)) + 1}, Reader: bytes.NewReader(data)}, sink: &memory{}, sent: transfer.ErrSize, got: transfer.ErrSize},
		"read error":        {src: transfer.Source{Offer: transfer.Offer{Name: "f", Size: int64(len(data))}, Reader: io.MultiReader(bytes.NewReader(data[:3000]), iotest.ErrReader(syscall.EIO))}, sink: &memory{}, sent: syscall.EIO, got: &transfer.RemoteError{}},
		"disk full":         {src: source(data), sink: &memory{writeErr: disk}, sent: &transfer.RemoteError{}, got: syscall.ENOSPC, sentSays: "no space left", neverSays: "secret"},
		"rename fails":      {src: source(data), sink: &memory{commitErr: disk}, sent: &transfer.RemoteError{}, got: syscall.ENOSPC, sentSays: "no space left", neverSays: "secret"},
		"appeared meantime": {src: source(data), sink: &memory{commitErr: transfer.ErrExists}, sent: transfer.ErrExists, got: transfer.ErrExists},
	} {
		t.Run(name, func(t *testing.T) {
			sent, got, _ := exchange(t, c.src, c.sink)
			for side, p := range map[string]struct{ got, want error }{"send": {sent.err, c.sent}, "receive": {got.err, c.got}} {
				var remote *transfer.RemoteError
				if _, ok := p.want.(*transfer.RemoteError); ok && errors.As(p.got, &remote) {
					continue
				}
				should.Fail(t, p.got, p.want, "%s", side)
			}
			if sent.err != nil && !strings.Contains(sent.err.Error(), c.sentSays) {
				t.Errorf("sender says %q without %q", sent.err, c.sentSays)
			}
			if c.neverSays != "" && strings.Contains(sent.err.Error(), c.neverSays) {
				t.Errorf("sender learnt %q: %v", c.neverSays, sent.err)
			}
			should.Hold(t, !c.sink.committed && c.sink.discarded, "committed %v, discarded %v", c.sink.committed, c.sink.discarded)
		})
	}
}

// TestSenderWithBlockedFile checks that a sender whose file yields nothing more
// still notices what the receiver does, and that it can be interrupted.
func TestSenderWithBlockedFile(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(b net.Conn, cancel context.CancelFunc)
		want error
	}{
		"receiver gone":      {func(b net.Conn, _ context.CancelFunc) { _ = b.Close() }, transfer.ErrPeerLost},
		"receiver gives up":  {func(b net.Conn, _ context.CancelFunc) { say(t, b, `{"reason":"interrupted"}`+"\n") }, &transfer.RemoteError{}},
		"receiver satisfied": {func(b net.Conn, _ context.CancelFunc) { say(t, b, digest(5, "some\n")+"\n") }, transfer.ErrProtocol},
		"interrupted":        {func(_ net.Conn, cancel context.CancelFunc) { cancel() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newPipe(t)
			r, w := io.Pipe()
			defer w.Close()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan error)
			go func() {
				_, err := transfer.Send(ctx, a, transfer.Source{Offer: transfer.Offer{Name: "f", Size: transfer.UnknownSize}, Reader: r}, nil)
				done <- err
			}()
			hear(t, b)
			w.Write([]byte("some\n"))
			should.Be(t, hear(t, b), chunk("some\n"))
			c.end(b, cancel)
			err := <-done
			var remote *transfer.RemoteError
			if _, is := c.want.(*transfer.RemoteError); is && errors.As(err, &remote) {
				return
			}
			should.Fail(t, err, c.want)
		})
	}
}

// TestReceiverWithBlockedOutput checks that one can be interrupted.
func TestReceiverWithBlockedOutput(t *testing.T) {
	a, b := newPipe(t)
	sink := &memory{blocked: make(chan struct{})}
	defer close(sink.blocked)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := transfer.Receive(ctx, b, func(transfer.Offer) (transfer.Sink, error) { return sink, nil }, nil)
		done <- err
	}()
	say(t, a, `{"name":"stdin","size":-1,"mode":0}`+"\n")
	for range 8 {
		say(t, a, chunk("x"))
	}
	time.AfterFunc(10*time.Millisecond, cancel)
	should.Fail(t, <-done, context.Canceled)
	should.Hold(t, sink.discarded, "not discarded")
	should.Contain(t, hear(t, a), `"reason":"interrupted"`, "the sender is told")
}
