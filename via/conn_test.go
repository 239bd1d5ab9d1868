package via_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// TestConnMessages sends messages of all sizes in both directions at once.
func TestConnMessages(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options via.ConnOptions
		nics    emulator.PairOptions
	}{
		{"defaults", via.ConnOptions{}, emulator.PairOptions{}},
		{"one message at a time", via.ConnOptions{MaxMessage: 1, SendDepth: 1, RecvDepth: 1}, emulator.PairOptions{}},
		{"inline data", via.ConnOptions{MaxMessage: 200, SendDepth: 3, RecvDepth: 7}, emulator.PairOptions{}},
		{"reception", via.ConnOptions{Reliability: via.ReliableReception}, emulator.PairOptions{Threads: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := connPair(t, tt.options, tt.nics)
			var both sync.WaitGroup
			for i, c := range []*via.Conn{a, b} {
				both.Go(func() { sendRandom(t, c, uint64(i)) })
				both.Go(func() { receiveRandom(t, c, uint64(1-i)) })
			}
			both.Wait()
			closeBoth(t, a, b)
		})
	}
}

const randomMessages = 500

// randomMessage fills buf with the next message of a generator.
func randomMessage(r *rand.Rand, buf []byte) []byte {
	m := buf[:r.IntN(len(buf)+1)]
	for i := range m {
		m[i] = byte(r.Uint32())
	}
	return m
}

func sendRandom(t *testing.T, c *via.Conn, seed uint64) {
	ctx := conform.Context(t)
	r := rand.New(rand.NewPCG(seed, 1))
	for range randomMessages {
		b, err := c.Acquire(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		if err := c.Post(len(randomMessage(r, b))); err != nil {
			t.Error(err)
			return
		}
	}
	should.OK(t, c.CloseSend(ctx))
}

func receiveRandom(t *testing.T, c *via.Conn, seed uint64) {
	ctx := conform.Context(t)
	r := rand.New(rand.NewPCG(seed, 1))
	buf := make([]byte, c.MaxMessage())
	for i := range randomMessages {
		m, err := c.Receive(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		if want := randomMessage(r, buf); !bytes.Equal(m, want) {
			t.Errorf("message %d: %d bytes, want other %d", i, len(m), len(want))
			return
		}
		if err := c.Release(); err != nil {
			t.Error(err)
			return
		}
	}
	for range 2 {
		if _, err := c.Receive(ctx); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
	}
}

func closeBoth(t testing.TB, a, b *via.Conn) {
	must.OK(t, errors.Join(a.Close(), b.Close()))
}

// fill posts the messages from first on to before last.
func fill(t *testing.T, c *via.Conn, first, last int) {
	t.Helper()
	for i := first; i < last; i++ {
		if err := c.Send(conform.Context(t), fmt.Append(nil, i)); err != nil {
			t.Errorf("message %d: %v", i, err)
			return
		}
	}
}

// drain receives the messages from first on to before last.
func drain(t *testing.T, c *via.Conn, first, last int) {
	t.Helper()
	for i := first; i < last; i++ {
		m, err := c.Receive(conform.Context(t))
		if err != nil || string(m) != fmt.Sprint(i) {
			t.Errorf("message %d: %q, %v", i, m, err)
			return
		}
		if err := c.Release(); err != nil {
			t.Error(err)
			return
		}
	}
}

// TestConnAhead: a sender is as many messages ahead of a side that receives nothing as the two
// have buffers. Then it waits, as long as its context says, and all that was posted arrives, also
// what waits while the sender closes.
func TestConnAhead(t *testing.T) {
	for _, receives := range []int{1, 2, 3, 8} {
		t.Run(fmt.Sprint(receives), func(t *testing.T) {
			t.Parallel()
			const sends = 5
			n := sends + receives
			ctx := conform.Context(t)
			a, b := connPair(t, via.ConnOptions{MaxMessage: 64, SendDepth: sends, RecvDepth: receives}, emulator.PairOptions{})
			fill(t, a, 0, n)
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			for name, call := range map[string]func() error{
				"acquire": func() error { _, err := a.Acquire(short); return err },
				"send":    func() error { return a.Send(short, []byte("not sent")) },
				"flush":   func() error { return a.Flush(short) },
			} {
				err := call()
				if !errors.Is(err, via.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
				}
				if name == "send" {
					should.Contain(t, err.Error(), "the peer must receive first")
				}
			}
			if m, err := a.TryAcquire(); m != nil || err != nil {
				t.Errorf("a buffer while all are in use: %v, %v", m, err)
			}
			read := 0
			for ; read < 3*receives; read += receives {
				drain(t, b, read, read+receives)
				fill(t, a, n+read, n+read+receives)
			}
			closed := make(chan error, 1)
			go func() { closed <- a.Close() }()
			drain(t, b, read, n+read)
			if _, err := b.Receive(ctx); err != io.EOF {
				t.Errorf("after the end: %v", err)
			}
			should.OK(t, <-closed)
			should.Fail(t, errors.Join(b.Send(ctx, nil), b.Flush(ctx)), via.ErrDisconnected, "send to nobody")
			should.OK(t, b.Close())
		})
	}
}

// TestConnCloseUnread: Close does not wait for ever for a side that receives nothing. It says that
// messages were dropped, and the other side learns it behind those that came.
func TestConnCloseUnread(t *testing.T) {
	t.Parallel()
	ctx := conform.Context(t)
	const receives = 3
	a, b := connPair(t, via.ConnOptions{MaxMessage: 64, SendDepth: 4, RecvDepth: receives}, emulator.PairOptions{})
	fill(t, a, 0, receives+4)
	should.Fail(t, a.Close(), via.ErrTimeout, "close")
	drain(t, b, 0, receives)
	should.Refuse(b.Receive(ctx))(t, via.ErrConnectionBroken, "behind what came")
	should.OK(t, b.Close())
}

// TestConnCloseSlow: a side that receives slowly, but does, gets all that Close waits with.
func TestConnCloseSlow(t *testing.T) {
	t.Parallel()
	a, b := connPair(t, via.ConnOptions{MaxMessage: 64, SendDepth: 3, RecvDepth: 1}, emulator.PairOptions{})
	fill(t, a, 0, 4)
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }()
	for i := range 4 {
		time.Sleep(600 * time.Millisecond) // longer in all than Close waits for one, which is longer by more than a busy machine takes
		drain(t, b, i, i+1)
	}
	if _, err := b.Receive(conform.Context(t)); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	must.OK(t, errors.Join(<-closed, b.Close()))
}

// TestConnBothFull: two sides that only send stop, and go on when they receive.
func TestConnBothFull(t *testing.T) {
	a, b := connPair(t, via.ConnOptions{MaxMessage: 64, SendDepth: 4, RecvDepth: 4}, emulator.PairOptions{})
	const ahead, more = 8, 100
	for _, c := range []*via.Conn{a, b} {
		fill(t, c, 0, ahead)
	}
	var both sync.WaitGroup
	for _, c := range []*via.Conn{a, b} {
		both.Go(func() {
			for i := range ahead + more {
				drain(t, c, i, i+1)
				if i < more {
					fill(t, c, ahead+i, ahead+i+1)
				}
			}
		})
	}
	both.Wait()
	closeBoth(t, a, b)
}

// TestConnWakes: Close ends calls in progress at its own side.
func TestConnWakes(t *testing.T) {
	t.Parallel()
	a, b := connPair(t, via.ConnOptions{MaxMessage: 64, SendDepth: 1, RecvDepth: 1}, emulator.PairOptions{})
	for range 2 { // one that waits in the NIC, and keeps the buffer
		must.OK(t, a.Send(conform.Context(t), nil))
	}
	calls := map[string]func() error{
		"receive":         func() error { _, err := a.Receive(t.Context()); return err },
		"receive as well": func() error { _, err := a.Receive(t.Context()); return err },
		"send":            func() error { return a.Send(t.Context(), nil) },
		"send as well":    func() error { return a.Send(t.Context(), nil) },
	}
	var all sync.WaitGroup
	for name, call := range calls {
		all.Go(func() {
			should.Fail(t, call(), via.ErrClosed, "%s", name)
		})
	}
	time.Sleep(10 * time.Millisecond) // most of them wait by then
	should.Fail(t, a.Close(), via.ErrTimeout)
	all.Wait()
	should.OK(t, a.Close())
	if err := b.Close(); err != nil && !errors.Is(err, via.ErrConnectionBroken) { // a has dropped a message
		t.Error(err)
	}
}

// TestConnCloseLast: whoever closes last hears nothing more of the other side, which may
// have gone for good. What was sent has arrived, so that is no error; else it is one.
func TestConnCloseLast(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprintf("taken %v", taken), func(t *testing.T) {
			t.Parallel()
			ctx := conform.Context(t)
			da, db := must.Two(emulator.Pair(emulator.PairOptions{}))(t)
			a, b := connect(t, nicOf(t, da), nicOf(t, db), via.ConnOptions{})
			must.OK(t, b.Send(ctx, []byte("an answer")))
			must.OK(t, errors.Join(b.Flush(ctx), a.CloseSend(ctx), a.Flush(ctx)))
			if _, err := b.Receive(ctx); err != io.EOF {
				t.Fatal(err)
			}
			da.Remove()
			if !taken {
				must.OK(t, b.Send(ctx, []byte("and more")))
			}
			if err := b.Close(); (err == nil) != taken {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// TestConnBroken: a peer that is gone without a word is an error, not an end.
func TestConnBroken(t *testing.T) {
	t.Parallel()
	ctx := conform.Context(t)
	da, db := must.Two(emulator.Pair(emulator.PairOptions{}))(t)
	na, nb := nicOf(t, da), nicOf(t, db)
	a, b := connect(t, na, nb, via.ConnOptions{})
	must.OK(t, a.Send(ctx, []byte("last words")))
	must.OK(t, a.Flush(ctx))
	da.Remove()
	m, err := b.Receive(ctx)
	if err != nil || string(m) != "last words" {
		t.Fatalf("%q, %v", m, err)
	}
	must.OK(t, b.Release())
	should.Refuse(b.Receive(ctx))(t, via.ErrPeerLost, "receive from a peer that is gone")
	should.Fail(t, b.Send(ctx, nil), via.ErrPeerLost, "send to a peer that is gone")
	should.OK(t, b.Close())
	should.Refuse(a.Receive(ctx))(t, via.ErrDevice, "receive on a device that is gone")
	_ = a.Close() // how it fails is the driver's business
}

// stranger connects a Conn with a bare VI.
func stranger(t *testing.T) (*via.Conn, *conform.End) {
	ctx := conform.Context(t)
	na, nb := conform.OnMemory(t, "", via.Options{})
	l := must.Get(via.Listen(nb, "conn", via.ListenOptions{}))(t)
	e := conform.NewEnd(t, na, conform.Setup{})
	_ = must.Get(conform.Request(ctx, e.VI, l.Address()))(t)
	c := must.Get(l.Accept(ctx))(t)
	t.Cleanup(func() {
		should.OK(t, errors.Join(c.Close(), l.Close()))
	})
	return c, e
}

// TestConnStranger: a peer that is no Conn is found out by immediate data.
func TestConnStranger(t *testing.T) {
	ctx := conform.Context(t)
	c, e := stranger(t)
	e.Send[1].SetImmediate(1)
	for _, d := range e.Send[:2] {
		must.OK(t, e.VI.PostSend(d))
	}
	if _, err := c.Receive(ctx); err != nil {
		t.Errorf("receive a message: %v", err)
	}
	should.OK(t, c.Release())
	should.Refuse(c.Receive(ctx))(t, via.ErrProtocol, "receive")
	should.Refuse(c.Acquire(ctx))(t, via.ErrProtocol, "acquire")
}

// TestConnMisuse: calls out of turn are refused and change nothing.
func TestConnMisuse(t *testing.T) {
	ctx := conform.Context(t)
	a, b := connPair(t, via.ConnOptions{MaxMessage: 64}, emulator.PairOptions{})
	should.Fail(t, a.Send(ctx, make([]byte, 65)), via.ErrInvalidParameter, "a message that is too long")
	should.Fail(t, a.Release(), via.ErrInvalidState, "release of nothing")
	if _, err := a.Acquire(ctx); err != nil {
		t.Error(err)
	}
	for _, n := range []int{-1, 65} {
		should.Fail(t, a.Post(n), via.ErrInvalidParameter, "post of %d bytes", n)
	}
	for range 2 {
		should.OK(t, a.Send(ctx, []byte("fits")))
	}
	for range 2 {
		if m, err := b.Receive(ctx); err != nil || string(m) != "fits" {
			t.Errorf("%q, %v", m, err)
		}
		should.Refuse(b.Receive(ctx))(t, via.ErrInvalidState, "receive while a message is held")
		should.OK(t, b.Release())
	}
	should.OK(t, a.CloseSend(ctx))
	should.Fail(t, a.Send(ctx, nil), via.ErrInvalidState, "send after the end")
	closeBoth(t, a, b)
	nic, _ := conform.OnMemory(t, "", via.Options{})
	for _, o := range []via.ConnOptions{{MaxMessage: -1}, {MaxMessage: 1<<30 + 1}, {SendDepth: -1}, {RecvDepth: 1 << 20}} {
		if _, err := via.Dial(ctx, nic, via.Address{}.String(), o); !errors.Is(err, via.ErrInvalidParameter) && !errors.Is(err, via.ErrInvalidMTU) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestConnAllocatesNothing: neither sending nor receiving does.
func TestConnAllocatesNothing(t *testing.T) {
	ctx := conform.Context(t)
	for _, size := range []int{64, 8192} {
		a, b := connPair(t, via.ConnOptions{MaxMessage: size}, emulator.PairOptions{})
		p := make([]byte, size)
		should.Be(t, testing.AllocsPerRun(500, func() {
			err := a.Send(ctx, p)
			if err == nil {
				_, err = b.Receive(ctx)
			}
			if err == nil {
				err = b.Release()
			}
			if err != nil {
				t.Fatal(err)
			}
		}), 0, "allocations for a message of %d bytes", size)
		closeBoth(t, a, b)
	}
}
