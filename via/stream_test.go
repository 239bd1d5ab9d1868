package via_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// connPair returns the two ends of a connection between two emulated NICs, the one
// that dialled first.
func connPair(t testing.TB, o via.ConnOptions, options emulator.PairOptions) (a, b *via.Conn) {
	da, db := must.Two(emulator.Pair(options))(t)
	return connect(t, nicOf(t, da), nicOf(t, db), o)
}

func nicOf(t testing.TB, d vfio.Device) *via.NIC {
	n := must.Get(via.OpenDevice(t.Context(), d, via.Options{}))(t)
	t.Cleanup(func() { closeNIC(t, n) })
	return n
}

// connect dials from one NIC to the other.
func connect(t testing.TB, from, to *via.NIC, o via.ConnOptions) (a, b *via.Conn) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l := must.Get(via.Listen(to, "conn", via.ListenOptions{Conn: func(via.Remote) (via.ConnOptions, error) { return o, nil }}))(t)
	a = must.Get(via.Dial(ctx, from, l.Address().String(), o))(t)
	b = must.Get(l.Accept(ctx))(t)
	must.OK(t, l.Close())
	return a, b
}

func closeNIC(t testing.TB, n *via.NIC) {
	should.OK(t, n.Close())
}

func streamPair(t testing.TB, o via.ConnOptions, options emulator.PairOptions) (a, b *via.Stream) {
	ca, cb := connPair(t, o, options)
	a = must.Get(ca.Stream())(t)
	b = must.Get(cb.Stream())(t)
	return a, b
}

// TestNetConn runs the suite that every net.Conn must pass.
func TestNetConn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		options via.ConnOptions
		nics    emulator.PairOptions
		soak    bool
	}{
		{"inline", via.ConnOptions{}, emulator.PairOptions{}, true},
		{"short messages", via.ConnOptions{MaxMessage: 100, SendDepth: 2, RecvDepth: 1}, emulator.PairOptions{}, false},
		{"threads", via.ConnOptions{}, emulator.PairOptions{Threads: true}, false},
	} {
		if tt.soak && !soak.Wanted() {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				a, b := streamPair(t, tt.options, tt.nics)
				return a, b, func() { _, _ = a.Close(), b.Close() }, nil
			})
		})
	}
}

// TestStreamHalfClose: after CloseWrite the other side reads all, then the end, and
// can still write.
func TestStreamHalfClose(t *testing.T) {
	a, b := streamPair(t, via.ConnOptions{}, emulator.PairOptions{})
	question := make([]byte, 1<<20)
	for i := range question {
		question[i] = byte(i * i >> 3)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := a.Write(question)
		sent <- errors.Join(err, a.CloseWrite())
	}()
	got, err := io.ReadAll(b)
	if err := errors.Join(err, <-sent); err != nil || !bytes.Equal(got, question) {
		t.Fatalf("%d bytes, want %d: %v", len(got), len(question), err)
	}
	if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after the end: %d bytes, %v", n, err)
	}
	if _, err := a.Write([]byte("more")); err == nil {
		t.Error("a write after CloseWrite")
	}
	if _, err := b.Write([]byte("answer")); err != nil {
		t.Error(err)
	}
	should.OK(t, b.Close())
	if got, err := io.ReadAll(a); err != nil || string(got) != "answer" {
		t.Errorf("%q, %v", got, err)
	}
	should.OK(t, a.Close())
}

// TestStreamCopy: io.Copy goes from and to registered memory, on faulty wires too.
func TestStreamCopy(t *testing.T) {
	faults := emulator.PairOptions{Faults: wire.FaultOptions{Loss: 0.05, Duplicate: 0.05, Reorder: 0.05, Corrupt: 0.05, Seed: 7}}
	for name, options := range map[string]emulator.PairOptions{"good wire": {}, "bad wire": faults} {
		t.Run(name, func(t *testing.T) {
			a, b := streamPair(t, via.ConnOptions{MaxMessage: 4000}, options)
			want := sha256.New()
			// Neither side offers WriteTo or ReadFrom: the stream's are used.
			source := struct{ io.Reader }{io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), 1<<20), want)}
			done := make(chan error, 1)
			go func() {
				_, err := io.Copy(a, source)
				done <- errors.Join(err, a.Close())
			}()
			got := sha256.New()
			n, err := io.Copy(struct{ io.Writer }{got}, b)
			must.OK(t, errors.Join(err, <-done, b.Close()))
			if n != 1<<20 || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
				t.Errorf("%d bytes came, and not those that were sent", n)
			}
		})
	}
}

// TestStreamErrors: errors of who feeds a stream, or is fed, are passed on.
func TestStreamErrors(t *testing.T) {
	a, b := streamPair(t, via.ConnOptions{}, emulator.PairOptions{})
	broken := errors.New("broken")
	if n, err := a.ReadFrom(io.MultiReader(strings.NewReader("some"), iotest.ErrReader(broken))); n != 4 || err != broken {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := b.WriteTo(writerFunc(func(p []byte) (int, error) { return 1, broken })); n != 1 || err != broken {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := b.WriteTo(writerFunc(func(p []byte) (int, error) { return 1, nil })); n != 1 || err != io.ErrShortWrite {
		t.Errorf("%d bytes, %v", n, err)
	}
	rest := make([]byte, 10)
	if n, err := b.Read(rest); string(rest[:n]) != "me" || err != nil {
		t.Errorf("%q is left, %v", rest[:n], err)
	}
	should.OK(t, errors.Join(a.Close(), b.Close()))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestStreamCloseDuringCopy: the memory of a stream lives as long as a call uses it.
func TestStreamCloseDuringCopy(t *testing.T) {
	a, b := streamPair(t, via.ConnOptions{}, emulator.PairOptions{})
	must.Get(a.Write([]byte("held")))(t)
	inside, goOn := make(chan struct{}), make(chan struct{})
	done := make(chan error, 2)
	go func() {
		_, err := b.WriteTo(writerFunc(func(p []byte) (int, error) {
			close(inside)
			<-goOn
			should.Be(t, string(p), "held", "%q", p)
			return len(p), nil
		}))
		done <- err
	}()
	go func() {
		_, err := b.ReadFrom(readerFunc(func(p []byte) (int, error) {
			<-goOn
			return copy(p, "too late"), nil
		}))
		done <- err
	}()
	<-inside
	should.OK(t, b.Close())
	close(goOn)
	for range 2 {
		should.Fail(t, <-done, net.ErrClosed, "a call on a closed stream")
	}
	should.Refuse(b.Read(make([]byte, 1)))(t, net.ErrClosed, "read of a closed stream")
	should.OK(t, b.Close())
	should.OK(t, a.Close())
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestStreamOfUnreliable: there is none.
func TestStreamOfUnreliable(t *testing.T) {
	a, b := connPair(t, via.ConnOptions{Reliability: via.Unreliable}, emulator.PairOptions{})
	should.Refuse(a.Stream())(t, via.ErrInvalidReliability)
	closeBoth(t, a, b)
}
