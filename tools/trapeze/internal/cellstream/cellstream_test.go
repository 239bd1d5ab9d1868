package cellstream_test

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cellstream"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// timeout ends tests that do not end by themselves; machines are busy.
const timeout = time.Minute

// pair is a pair of channels over two NICs.
type pair struct {
	from, to *channel.Channel
	far      *via.NIC
}

func newPair(t *testing.T, options emulator.PairOptions) pair {
	t.Helper()
	x, y, err := emulator.Pair(options)
	if err != nil {
		t.Fatal(err)
	}
	a, err := via.OpenDevice(t.Context(), x, via.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := via.OpenDevice(t.Context(), y, via.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	l, err := channel.Listen(b, cellstream.Name, channel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	p := pair{far: b}
	if p.from, err = channel.Dial(ctx, a, l.Address().String(), channel.Options{PageSize: cellstream.PageSize}); err == nil {
		p.to, err = l.Accept(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func limited(size int) cellstream.Options {
	return cellstream.Options{Priority: channel.Low, Size: size, Rate: 1e9, Timeout: timeout}
}

// outcome is what came of a stream at both ends.
type outcome struct {
	sent     cellstream.Totals
	received cellstream.Counts
	err      error // of sending
	rerr     error // of receiving
}

func run(ctx context.Context, p pair, o cellstream.Options) (r outcome) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.received, r.rerr = cellstream.Receive(context.WithoutCancel(ctx), p.far, p.to)
	}()
	r.sent, r.err = cellstream.Send(ctx, p.from, o)
	if err := p.from.Close(); r.err == nil {
		r.err = err
	}
	<-done
	return r
}

// TestAllArrives: messages of any size and priority arrive, each once, whoever steps the NICs.
func TestAllArrives(t *testing.T) {
	for name, options := range map[string]emulator.PairOptions{"inline": {}, "threads": emulator.PairOptions{Threads: true}} {
		for size, messages := range map[int]uint64{cellstream.MinSize: 200, 40: 200, 4096: 50, cellstream.MaxSize: 5} {
			for _, priority := range []channel.Priority{channel.High, channel.Low} {
				o := limited(size)
				o.Priority, o.Messages = priority, messages
				progress := uint64(0)
				o.Progress = func(n int) { progress += uint64(n) }
				r := run(t.Context(), newPair(t, options), o)
				if r.err != nil || r.rerr != nil || r.sent.Messages != messages || progress != r.sent.Bytes || r.sent.Bytes != r.sent.Delivered*uint64(size) ||
					r.received.Messages != r.sent.Delivered || r.received.Bytes != r.sent.Bytes || r.sent.Seconds <= 0 {
					t.Errorf("%s, %d bytes: %+v, progress %d", name, size, r, progress)
				}
				want := cellstream.Totals{Messages: messages, Delivered: messages, Bytes: messages * uint64(size), Stops: r.sent.Stops,
					Seconds: r.sent.Seconds, Rate: r.sent.Rate, Cells: r.sent.Cells, Pace: r.sent.Pace}
				// On a machine that is too busy it may have been too impatient.
				if r.sent.Stalls == 0 && r.sent != want {
					t.Errorf("%s, %d bytes: %+v", name, size, r.sent)
				}
			}
		}
	}
}

// TestLimits: bytes, a time and the context end a stream, and the totals are those until then.
func TestLimits(t *testing.T) {
	o := limited(1024)
	o.Bytes = 10*1024 - 1
	if r := run(t.Context(), newPair(t, emulator.PairOptions{}), o); r.err != nil || r.sent.Messages != 10 || r.sent.Delivered != 10 {
		t.Errorf("%+v", r)
	}
	o = limited(1024)
	o.Duration = 20 * time.Millisecond
	if r := run(t.Context(), newPair(t, emulator.PairOptions{}), o); r.err != nil || r.sent.Delivered > r.sent.Messages || r.sent.Seconds < o.Duration.Seconds() {
		t.Errorf("%+v", r)
	}
	p := newPair(t, emulator.PairOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	o = limited(1024)
	o.Progress = func(int) { cancel() }
	if r := run(ctx, p, o); r.err != nil || r.sent.Messages == 0 || r.sent.Delivered == 0 || r.sent.Delivered > r.sent.Messages {
		t.Errorf("%+v", r)
	}
}

// TestRate: no more is sent in a time than the rate allows.
func TestRate(t *testing.T) {
	o := limited(1024)
	o.Rate, o.Duration = 100e3, 100*time.Millisecond
	r := run(t.Context(), newPair(t, emulator.PairOptions{}), o)
	if r.err != nil || r.sent.Pace > o.Rate/1e6 || float64(r.sent.Bytes) > o.Rate*(o.Duration.Seconds())+2*1024 {
		t.Errorf("%+v", r)
	}
}

// TestLosses: of what a wire loses nothing is taken for delivered, what is left arrives, and
// the pace falls.
func TestLosses(t *testing.T) {
	o := limited(4096)
	o.Messages = 300
	r := run(t.Context(), newPair(t, emulator.PairOptions{Faults: wire.FaultOptions{Loss: 0.02, Duplicate: 0.01, Corrupt: 0.01, Seed: 1}}), o)
	if r.err != nil || r.rerr != nil {
		t.Fatalf("%+v", r)
	}
	if r.sent.Messages != 300 || r.sent.Delivered >= 300 || r.sent.Delivered < 30 || r.sent.Damaged == 0 || r.sent.Bytes != 4096*r.sent.Delivered {
		t.Errorf("%+v", r)
	}
}

// TestSilence: who says nothing is given up after a while, and who does not take the end is too.
func TestSilence(t *testing.T) {
	p := newPair(t, emulator.PairOptions{Threads: true})
	o := limited(1024)
	o.Timeout = 50 * time.Millisecond
	if sent, err := cellstream.Send(t.Context(), p.from, o); !errors.Is(err, via.ErrTimeout) || sent.Messages == 0 || sent.Delivered != 0 {
		t.Errorf("%+v, %v", sent, err)
	}
	o.Messages = 3
	p = newPair(t, emulator.PairOptions{Threads: true})
	if sent, err := cellstream.Send(t.Context(), p.from, o); !errors.Is(err, via.ErrTimeout) || sent.Messages != 3 {
		t.Errorf("%+v, %v", sent, err)
	}
}

// TestLostPeer: an end that closes is no news for a receiver once the stream has ended, and
// else an error, for both.
func TestLostPeer(t *testing.T) {
	p := newPair(t, emulator.PairOptions{Threads: true})
	done := make(chan error, 1)
	go func() {
		_, err := cellstream.Send(t.Context(), p.from, limited(1024))
		done <- err
	}()
	m, err := p.to.Wait(t.Context())
	if err := errors.Join(err, m.Err, p.to.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, transfer.ErrPeerLost) {
		t.Error(err)
	}
	p = newPair(t, emulator.PairOptions{Threads: true})
	if err := p.from.Close(); err != nil {
		t.Fatal(err)
	}
	if counts, err := cellstream.Receive(t.Context(), p.far, p.to); !errors.Is(err, transfer.ErrPeerLost) || counts.Messages != 0 {
		t.Errorf("%+v, %v", counts, err)
	}
}

// report has a peer say something that makes no sense, after a message has come.
func report(t *testing.T, p pair, words []uint64) error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := cellstream.Send(t.Context(), p.from, limited(1024))
		done <- err
	}()
	if _, err := p.to.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	var b []byte
	for _, w := range words {
		b = binary.BigEndian.AppendUint64(b, w)
	}
	if err := p.to.Send(channel.High, 0, p.to.SendPages().Put(0, b)); err != nil {
		t.Fatal(err)
	}
	return <-done
}

// TestLyingReceiver: reports of what cannot be are errors.
func TestLyingReceiver(t *testing.T) {
	const kind = 'T'<<56 | 'z'<<48 | 'R'<<40
	for name, words := range map[string][]uint64{
		"messages that were not sent": {kind | 1000, 1000, 1000, 1000, 0, 0, 0, 0},
		"more messages than numbers":  {kind | 1, 1, 2, 1024, 0, 0, 0, 0},
		"more bytes than messages":    {kind | 1, 1, 1, 1025, 0, 0, 0, 0},
		"numbers behind the highest":  {kind | 1, 0, 0, 0, 0, 0, 0, 0},
		"another message":             {1, 1, 1, 1024, 0, 0, 0, 0},
		"a short one":                 {kind | 1, 1},
		"a long one":                  {kind | 1, 1, 1, 1024, 0, 0, 0, 0, 0},
	} {
		if err := report(t, newPair(t, emulator.PairOptions{Threads: true}), words); !errors.Is(err, via.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStranger: messages that are none of a stream are not taken for any.
func TestStranger(t *testing.T) {
	p := newPair(t, emulator.PairOptions{Threads: true})
	for i := range 3 {
		if err := p.from.Send(channel.High, i, i+1); err != nil {
			t.Fatal(err)
		}
	}
	type result struct {
		counts cellstream.Counts
		err    error
	}
	done := make(chan result, 1)
	go func() {
		counts, err := cellstream.Receive(t.Context(), p.far, p.to)
		done <- result{counts, err}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if _, err := p.from.Wait(ctx); err != nil { // a report
		t.Fatal(err)
	}
	if err := p.from.Close(); err != nil {
		t.Fatal(err)
	}
	if r := <-done; !errors.Is(r.err, transfer.ErrPeerLost) || r.counts.Messages != 0 || r.counts.Next != 0 {
		t.Errorf("%+v", r)
	}
}
