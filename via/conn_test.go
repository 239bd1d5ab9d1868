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
	if err := c.CloseSend(ctx); err != nil {
		t.Error(err)
	}
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
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// TestConnCredit: a side that receives nothing stops the other one before the NIC, so
// that all that was posted arrives, also if the sender closes at once.
func TestConnCredit(t *testing.T) {
	for _, window := range []int{1, 2, 3, 8} {
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			ctx := conform.Context(t)
			a, b := connPair(t, via.ConnOptions{MaxMessage: 64, SendDepth: 20, RecvDepth: window}, emulator.PairOptions{})
			for i := range window {
				if err := a.Send(ctx, []byte{byte(i)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.Flush(ctx); err != nil {
				t.Errorf("what was posted does not arrive: %v", err)
			}
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			if _, err := a.Acquire(short); !errors.Is(err, via.ErrTimeout) {
				t.Errorf("a buffer without room: %v", err)
			}
			if m, err := a.TryAcquire(); m != nil || err != nil {
				t.Errorf("a buffer without room: %v, %v", m, err)
			}
			if err := a.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			for i := range window {
				m, err := b.Receive(ctx)
				if err != nil || !bytes.Equal(m, []byte{byte(i)}) {
					t.Fatalf("message %d: %v, %v", i, m, err)
				}
				if err := b.Release(); err != nil {
					t.Errorf("nobody is there for the grant, but %v", err)
				}
			}
			if _, err := b.Receive(ctx); err != io.EOF {
				t.Errorf("after the end: %v", err)
			}
			if err := errors.Join(b.Send(ctx, nil), b.Flush(ctx)); !errors.Is(err, via.ErrDisconnected) {
				t.Errorf("send to nobody: %v", err)
			}
			if err := b.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// TestConnBothFull: two sides that only send stop, and go on when they receive.
func TestConnBothFull(t *testing.T) {
	ctx := conform.Context(t)
	a, b := connPair(t, via.ConnOptions{MaxMessage: 64, SendDepth: 4, RecvDepth: 4}, emulator.PairOptions{})
	for _, c := range []*via.Conn{a, b} {
		if _, err := c.Acquire(ctx); err != nil { // once the other side has said what it has room for
			t.Fatal(err)
		}
		for n := 0; ; n++ {
			m, err := c.TryAcquire()
			if err != nil || m == nil && n != 4 {
				t.Fatalf("%d messages: %v", n, err)
			}
			if m == nil {
				break
			}
			if err := c.Post(copy(m, "x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	var both sync.WaitGroup
	for _, c := range []*via.Conn{a, b} {
		both.Go(func() {
			for range 100 {
				if _, err := c.Receive(ctx); err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(c.Release(), c.Send(ctx, []byte("x"))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	both.Wait()
	closeBoth(t, a, b)
}

// TestConnWakes: Close ends calls in progress at its own side.
func TestConnWakes(t *testing.T) {
	a, b := connPair(t, via.ConnOptions{MaxMessage: 64, SendDepth: 1, RecvDepth: 1}, emulator.PairOptions{})
	if err := a.Send(conform.Context(t), nil); err != nil {
		t.Fatal(err)
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
			if err := call(); !errors.Is(err, via.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	time.Sleep(10 * time.Millisecond) // most of them wait by then
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if err := a.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestConnCloseLast: whoever closes last hears nothing more of the other side, which may
// have gone for good. What was sent has arrived, so that is no error; else it is one.
func TestConnCloseLast(t *testing.T) {
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprintf("taken %v", taken), func(t *testing.T) {
			t.Parallel()
			ctx := conform.Context(t)
			da, db, err := emulator.Pair(emulator.PairOptions{})
			if err != nil {
				t.Fatal(err)
			}
			a, b := connect(t, nicOf(t, da), nicOf(t, db), via.ConnOptions{})
			if err := b.Send(ctx, []byte("an answer")); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(b.Flush(ctx), a.CloseSend(ctx), a.Flush(ctx)); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Receive(ctx); err != io.EOF {
				t.Fatal(err)
			}
			da.Remove()
			if !taken {
				if err := b.Send(ctx, []byte("and more")); err != nil {
					t.Fatal(err)
				}
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
	da, db, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	na, nb := nicOf(t, da), nicOf(t, db)
	a, b := connect(t, na, nb, via.ConnOptions{})
	if err := a.Send(ctx, []byte("last words")); err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	da.Remove()
	m, err := b.Receive(ctx)
	if err != nil || string(m) != "last words" {
		t.Fatalf("%q, %v", m, err)
	}
	if err := b.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Receive(ctx); !errors.Is(err, via.ErrPeerLost) {
		t.Errorf("receive from a peer that is gone: %v", err)
	}
	if err := b.Send(ctx, nil); !errors.Is(err, via.ErrPeerLost) {
		t.Errorf("send to a peer that is gone: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.Receive(ctx); !errors.Is(err, via.ErrDevice) {
		t.Errorf("receive on a device that is gone: %v", err)
	}
	_ = a.Close() // how it fails is the driver's business
}

// stranger connects a Conn with a bare VI.
func stranger(t *testing.T) (*via.Conn, *conform.End) {
	ctx := conform.Context(t)
	na, nb := conform.OnMemory(t, "", via.Options{})
	l, err := via.Listen(nb, "conn", via.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := conform.NewEnd(t, na, conform.Setup{})
	if _, err = conform.Request(ctx, e.VI, l.Address()); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, e
}

// TestConnStranger: a peer that is no Conn is found out.
func TestConnStranger(t *testing.T) {
	for name, prepare := range map[string]func(*via.Descriptor){
		"no immediate data": func(*via.Descriptor) {},
		"no kind":           func(d *via.Descriptor) { d.SetImmediate(1) },
		"reserved bit":      func(d *via.Descriptor) { d.SetImmediate(1<<30 | 1<<15) },
		"forged notice":     func(d *via.Descriptor) { d.SetImmediate(1<<30 | 2<<16) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := conform.Context(t)
			c, e := stranger(t)
			prepare(e.Send[0])
			if err := e.VI.PostSend(e.Send[0]); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Receive(ctx); !errors.Is(err, via.ErrProtocol) {
				t.Errorf("receive: %v", err)
			}
			if _, err := c.Acquire(ctx); !errors.Is(err, via.ErrProtocol) {
				t.Errorf("acquire: %v", err)
			}
		})
	}
}

// TestConnForgedGrants: a peer that grants more than a queue holds is found out by who
// sends.
func TestConnForgedGrants(t *testing.T) {
	ctx := conform.Context(t)
	c, e := stranger(t)
	for _, d := range e.Send[:2] {
		d.SetImmediate(2<<30 | via.MaxConnDepth)
		if err := e.VI.PostSend(d); err != nil {
			t.Fatal(err)
		}
		if _, err := e.VI.SendWait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := c.TryReceive(); m != nil || err != nil { // the first one
		t.Errorf("%v, %v", m, err)
	}
	if m, err := c.TryReceive(); m != nil || err != nil {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := c.Acquire(ctx); !errors.Is(err, via.ErrProtocol) {
		t.Errorf("acquire: %v", err)
	}
}

// TestConnMisuse: calls out of turn are refused and change nothing.
func TestConnMisuse(t *testing.T) {
	ctx := conform.Context(t)
	a, b := connPair(t, via.ConnOptions{MaxMessage: 64}, emulator.PairOptions{})
	if err := a.Send(ctx, make([]byte, 65)); !errors.Is(err, via.ErrInvalidParameter) {
		t.Errorf("a message that is too long: %v", err)
	}
	if err := a.Release(); !errors.Is(err, via.ErrInvalidState) {
		t.Errorf("release of nothing: %v", err)
	}
	if _, err := a.Acquire(ctx); err != nil {
		t.Error(err)
	}
	for _, n := range []int{-1, 65} {
		if err := a.Post(n); !errors.Is(err, via.ErrInvalidParameter) {
			t.Errorf("post of %d bytes: %v", n, err)
		}
	}
	for range 2 {
		if err := a.Send(ctx, []byte("fits")); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if m, err := b.Receive(ctx); err != nil || string(m) != "fits" {
			t.Errorf("%q, %v", m, err)
		}
		if _, err := b.Receive(ctx); !errors.Is(err, via.ErrInvalidState) {
			t.Errorf("receive while a message is held: %v", err)
		}
		if err := b.Release(); err != nil {
			t.Error(err)
		}
	}
	if err := a.CloseSend(ctx); err != nil {
		t.Error(err)
	}
	if err := a.Send(ctx, nil); !errors.Is(err, via.ErrInvalidState) {
		t.Errorf("send after the end: %v", err)
	}
	closeBoth(t, a, b)
	for _, o := range []via.ConnOptions{{MaxMessage: -1}, {MaxMessage: 1<<30 + 1}, {SendDepth: -1}, {RecvDepth: 1 << 20}} {
		if _, err := via.Dial(ctx, a.VI().NIC(), via.Address{}.String(), o); !errors.Is(err, via.ErrInvalidParameter) && !errors.Is(err, via.ErrInvalidMTU) {
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
		if n := testing.AllocsPerRun(500, func() {
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
		}); n != 0 {
			t.Errorf("%v allocations for a message of %d bytes", n, size)
		}
		closeBoth(t, a, b)
	}
}
