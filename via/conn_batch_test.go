package via_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// TestConnBatches: whatever the sizes of batches are, all messages come, in order.
func TestConnBatches(t *testing.T) {
	for _, o := range []via.ConnOptions{
		{MaxMessage: 64, SendDepth: 8, RecvDepth: 8},
		{MaxMessage: 5000, SendDepth: 7, RecvDepth: 20},
		{MaxMessage: 64, SendDepth: 20, RecvDepth: 3},
		{MaxMessage: 300, SendDepth: 8, RecvDepth: 64, Reliability: via.Unreliable},
	} {
		const total = 300
		ctx := conform.Context(t)
		x, y := connPair(t, o, emulator.PairOptions{})
		sent, came := 0, 0
		into := make([][]byte, 5)
		for turn := 0; came < total; turn++ {
			if ctx.Err() != nil {
				t.Fatalf("%+v: %d of %d messages came", o, came, total)
			}
			for range min(turn%(2*o.SendDepth), total-sent) {
				if o.Reliability == via.Unreliable && sent-came == o.RecvDepth {
					break
				}
				b, err := x.TryAcquire()
				if err != nil {
					t.Fatal(err)
				}
				if b == nil {
					break
				}
				b[0], b[1] = byte(sent), byte(sent>>8)
				if err := x.Add(2 + sent%(o.MaxMessage-1)); err != nil {
					t.Fatal(err)
				}
				sent++
			}
			if err := x.PostBatch(); err != nil {
				t.Fatal(err)
			}
			n, err := y.ReceiveBatch(into[:turn%(len(into)+1)])
			if err != nil || n > turn%(len(into)+1) {
				t.Fatalf("%d messages, %v", n, err)
			}
			for _, m := range into[:n] {
				if len(m) != 2+came%(o.MaxMessage-1) || m[0] != byte(came) || m[1] != byte(came>>8) {
					t.Fatalf("%+v: message %d has %d bytes and begins with %d", o, came, len(m), m[:2])
				}
				came++
			}
			if n == 0 {
				continue
			}
			if _, err := y.ReceiveBatch(into); !errors.Is(err, via.ErrInvalidState) {
				t.Fatalf("a batch while another is held: %v", err)
			}
			if err := y.Release(); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Flush(ctx); err != nil {
			t.Error(err)
		}
		closeBoth(t, x, y)
	}
}

// TestConnAdded: what was added goes out before a later call waits for it, in order
// with what is posted, and never if the connection is closed first.
func TestConnAdded(t *testing.T) {
	ctx := conform.Context(t)
	x, y := connPair(t, via.ConnOptions{MaxMessage: 64, SendDepth: 2, RecvDepth: 8}, emulator.PairOptions{})
	say := func(text string, post func(int) error) {
		t.Helper()
		b, err := x.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := post(copy(b, text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"1", "2", "3"} { // for the third there is a buffer once the first has arrived
		say(text, x.Add)
	}
	say("4", x.Post)
	for _, want := range []string{"1", "2", "3", "4"} {
		m, err := y.Receive(ctx)
		if err != nil || string(m) != want {
			t.Fatalf("%q, %v, want %q", m, err, want)
		}
		if err := y.Release(); err != nil {
			t.Fatal(err)
		}
	}
	say("never", x.Add)
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	into := make([][]byte, 1)
	n, err := 0, error(nil)
	for n == 0 && err == nil && ctx.Err() == nil {
		n, err = y.ReceiveBatch(into)
	}
	if n != 0 || err != io.EOF {
		t.Errorf("after the end: %d messages, %v", n, err)
	}
	if err := x.Add(1); !errors.Is(err, via.ErrClosed) {
		t.Errorf("add: %v", err)
	}
	if err := x.PostBatch(); !errors.Is(err, via.ErrClosed) {
		t.Errorf("post: %v", err)
	}
	if _, err := x.ReceiveBatch(into); !errors.Is(err, via.ErrClosed) {
		t.Errorf("receive: %v", err)
	}
	if err := y.Close(); err != nil {
		t.Error(err)
	}
}

// TestConnBatchesAllocateNothing on either side.
func TestConnBatchesAllocateNothing(t *testing.T) {
	x, y := connPair(t, via.ConnOptions{MaxMessage: 64}, emulator.PairOptions{})
	text, into := bytes.Repeat([]byte("x"), 64), make([][]byte, 8)
	if n := testing.AllocsPerRun(1000, func() {
		for added := 0; added < len(into); {
			b, err := x.TryAcquire() // waiting may allocate
			if b != nil {
				added++
				err = x.Add(copy(b, text))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := x.PostBatch(); err != nil {
			t.Fatal(err)
		}
		for came := 0; came < len(into); {
			n, err := y.ReceiveBatch(into)
			if err != nil {
				t.Fatal(err)
			}
			if came += n; n > 0 {
				if err := y.Release(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations for a batch", n)
	}
	closeBoth(t, x, y)
}
