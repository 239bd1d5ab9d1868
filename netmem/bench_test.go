package netmem_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// BenchmarkFetch fetches pages past the cache, one at a time: a request of one message and
// the page in the reply. Both NICs are in this process, stepped by who waits. x-one-way is
// the time beside that of a message of 64 bytes and one as long as a page, one way each.
func BenchmarkFetch(b *testing.B) {
	for _, page := range []int{4 << 10, 8 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dKiB", page>>10), func(b *testing.B) {
			r := newRig(b, emulator.PairOptions{})
			s := r.serve(netmem.ServerOptions{Page: page, Size: 4 << 20})
			c := r.open(netmem.Options{Cache: 8 * int64(page), ReadAhead: -1}, s)
			fill := make([]byte, 4<<20)
			r.write(c, fill, 0)
			r.sync(c)
			m, err := r.near.Alloc(b.Context(), page, via.MemoryAttributes{})
			if err != nil {
				b.Fatal(err)
			}
			floor := oneWay(b, r, 64) + oneWay(b, r, page)
			frame := ring.Frame{Memory: m, Length: page}
			pages := uint64(c.Size()) / uint64(page)
			b.SetBytes(int64(page))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range uint64(b.N) {
				if _, err := c.Fetch(context.Background(), i%pages, frame); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(floor), "x-one-way")
		})
	}
}

// oneWay is how long a message of n bytes takes between two goroutines, one way.
func oneWay(b *testing.B, r *rig, n int) time.Duration {
	b.Helper()
	ctx := b.Context()
	o := via.ConnOptions{MaxMessage: n}
	l, err := via.Listen(r.far, fmt.Sprint("one way ", n), via.ListenOptions{Conn: func(via.Remote) (via.ConnOptions, error) { return o, nil }})
	if err != nil {
		b.Fatal(err)
	}
	near, err := via.Dial(ctx, r.near, l.Address().String(), o)
	if err != nil {
		b.Fatal(err)
	}
	far, err := l.Accept(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var echo sync.WaitGroup
	echo.Go(func() {
		for {
			p, err := far.Receive(ctx)
			if err != nil {
				return // the near end is closed
			}
			err = errors.Join(far.Send(ctx, p), far.Release())
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	const rounds = 3000
	message, start := make([]byte, n), time.Time{}
	for i := range rounds + rounds/10 {
		if i == rounds/10 {
			start = time.Now()
		}
		if err := near.Send(ctx, message); err != nil {
			b.Fatal(err)
		}
		if _, err := near.Receive(ctx); err != nil {
			b.Fatal(err)
		}
		if err := near.Release(); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(start)
	if err := errors.Join(near.Close(), far.Close(), l.Close()); err != nil {
		b.Error(err)
	}
	echo.Wait()
	return took / (2 * rounds)
}

// BenchmarkSequential reads through the cache, with what is fetched ahead.
func BenchmarkSequential(b *testing.B) {
	const page, size = 64 << 10, 32 << 20
	r := newRig(b, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: page, Size: size})
	c := r.open(netmem.Options{Cache: 8 << 20, ReadAhead: 1 << 20}, s)
	buffer := make([]byte, page)
	for off := int64(0); off < size; off += page {
		r.write(c, buffer, off)
	}
	r.sync(c)
	b.SetBytes(page)
	b.ReportAllocs()
	for i := range int64(b.N) {
		if _, err := c.ReadAt(buffer, i*page%size); err != nil {
			b.Fatal(err)
		}
	}
}
