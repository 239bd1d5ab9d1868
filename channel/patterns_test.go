package channel_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/via"
)

// TestPlacement: between a header of fixed length and a trailer of any, a page of data lands
// aligned to a page.
func TestPlacement(t *testing.T) {
	for _, pageSize := range []int{4096, 8192, 16384} {
		x, y := openPair(t, "", &channel.Options{PageSize: pageSize})
		header, data := random(112, 1), random(pageSize, 2)
		copy(x.SendPages().Page(1), data)
		for _, n := range []int{0, 1, 8, 84, 1000} {
			trailer := random(n, 3)
			if err := errors.Join(y.AllowPlaced(len(header)), x.SendPlaced(channel.Low, header, trailer)); err != nil {
				t.Fatal(err)
			}
			m, err := y.Wait(contextFor(t))
			if err != nil {
				t.Fatal(err)
			}
			h, d, tail, err := y.Placed(m, len(header))
			if err != nil || !bytes.Equal(h, header) || !bytes.Equal(d, data) || len(tail) != (n+7)&^7 || !bytes.Equal(tail[:n], trailer) {
				t.Fatalf("trailer of %d: %d, %d and %d bytes, %v", n, len(h), len(d), len(tail), err)
			}
			if &d[0] != &y.RecvPages().Page(1)[0] || y.RecvPages().Copied() != 0 {
				t.Error("the data were copied")
			}
			if at := reflect.ValueOf(d).Pointer(); at%uintptr(pageSize) != 0 || cap(h) != len(h) || cap(d) != len(d) || cap(tail) != len(tail) {
				t.Errorf("the data are at %#x; there is room for %d, %d and %d bytes", at, cap(h), cap(d), cap(tail))
			}
		}
		for name, err := range map[string]error{
			"header of part of a word": x.SendPlaced(channel.Low, header[:9], nil),
			"header of a page":         x.SendPlaced(channel.Low, make([]byte, pageSize), nil),
			"trailer of a page":        x.SendPlaced(channel.Low, header, make([]byte, pageSize)),
			"room for half a word":     y.AllowPlaced(4),
		} {
			if !errors.Is(err, via.ErrInvalidParameter) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// A message of another shape is not taken for one.
		if err := errors.Join(y.AllowPlaced(112), x.Send(channel.Low, 0, 3)); err != nil {
			t.Fatal(err)
		}
		m, err := y.Wait(contextFor(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := y.Placed(m, 112); err != channel.ErrLength {
			t.Errorf("a short message: %v", err)
		}
		if _, _, _, err := y.Placed(channel.PDU{Err: channel.ErrCRC}, 112); err != channel.ErrCRC {
			t.Errorf("a damaged message: %v", err)
		}
		if err := errors.Join(y.AllowPlaced(len(header)), x.SendPlaced(channel.Low, header, nil)); err != nil {
			t.Fatal(err)
		}
		if m, err = y.Wait(contextFor(t)); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := y.Placed(m, len(header)-channel.Word); err != channel.ErrLength {
			t.Errorf("another header: %v", err)
		}
		if err := y.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := y.Placed(m, len(header)); err != channel.ErrClosed {
			t.Errorf("a closed channel: %v", err)
		}
	}
}

// TestMulticast: one page reaches everybody, and channels with pages of their own are refused.
func TestMulticast(t *testing.T) {
	a, b := openBoth(t, "")
	pages, err := channel.NewPages(contextFor(t), a, 4096, via.MemoryAttributes{})
	if err != nil {
		t.Fatal(err)
	}
	const members = 8
	clients, servers := openPairs(t, a, b, members, &channel.Options{Send: pages}, nil)
	other, _ := openPairs(t, a, b, 1, nil, nil)
	want := random(4000, 1)
	if n, err := channel.Multicast(channel.Low, 3, pages.Put(3, want), clients...); n != members || err != nil {
		t.Fatal(n, err)
	}
	for i, s := range servers {
		m, err := s.Wait(contextFor(t))
		got := make([]byte, m.Length)
		if s.Read(m, got); err != nil || m.Err != nil || !bytes.Equal(got, want) {
			t.Errorf("member %d: %+v, %v", i, m, err)
		}
	}
	if _, err := channel.Multicast(channel.Low, 0, 1, append(clients, other...)...); !errors.Is(err, via.ErrInvalidParameter) {
		t.Error(err)
	}
	if _, err := channel.Dial(contextFor(t), a, via.Address{MAC: b.Query().Address}, &channel.Options{Send: pages, PageSize: 8192}); !errors.Is(err, via.ErrInvalidParameter) {
		t.Error(err)
	}
	if err := clients[2].Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := channel.Multicast(channel.Low, 0, 1, clients...); n != 2 || !errors.Is(err, channel.ErrClosed) {
		t.Error(n, err)
	}
}

// TestBarrier: nobody leaves a round before everybody has entered it.
func TestBarrier(t *testing.T) {
	const members, rounds = 5, 40
	a, b := openBoth(t, "&engine=thread")
	pages, err := channel.NewPages(contextFor(t), b, 4096, via.MemoryAttributes{})
	if err != nil {
		t.Fatal(err)
	}
	clients, servers := openPairs(t, a, b, members, nil, &channel.Options{Send: pages})
	barrier, err := channel.NewBarrier(servers...)
	if err != nil {
		t.Fatal(err)
	}
	var entered atomic.Int64
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			p := channel.NewParticipant(c)
			for round := range int64(rounds) {
				entered.Add(1)
				if err := p.Enter(contextFor(t)); err != nil {
					t.Error(err)
					return
				}
				if n := entered.Load(); n < (round+1)*members {
					t.Errorf("round %d ended when %d had entered", round, n-round*members)
				}
			}
		})
	}
	for range rounds {
		if err := barrier.Run(contextFor(t)); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	// Who does not come keeps the others until the time is up.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := barrier.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	// Who is in another round breaks the barrier.
	if err := clients[0].Send(channel.High, 0, 2); err != nil {
		t.Fatal(err)
	}
	if err := barrier.Run(contextFor(t)); !errors.Is(err, via.ErrProtocol) {
		t.Error(err)
	}
	mixed, _ := openPairs(t, a, b, 2, nil, nil)
	if _, err := channel.NewBarrier(mixed...); !errors.Is(err, via.ErrInvalidParameter) {
		t.Error(err)
	}
}

// TestBounce: messages of any size come back, and each round takes some time.
func TestBounce(t *testing.T) {
	x, y := openPair(t, "", nil)
	for _, size := range []int{8, 40, 48, 4096, 8104} {
		echoed := make(chan error)
		go func() { echoed <- y.Echo(contextFor(t), channel.High, 20) }()
		took, err := x.Bounce(contextFor(t), channel.High, size, 20)
		if err := errors.Join(err, <-echoed); err != nil || len(took) != 20 {
			t.Fatalf("%d bytes: %d rounds, %v", size, len(took), err)
		}
		for _, d := range took {
			if d <= 0 {
				t.Errorf("%d bytes took %v", size, d)
			}
		}
	}
	for _, size := range []int{0, 7, 8192} {
		if _, err := x.Bounce(contextFor(t), channel.High, size, 1); !errors.Is(err, via.ErrInvalidParameter) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := x.Bounce(contextFor(t), channel.High, 40, -1); !errors.Is(err, via.ErrInvalidParameter) {
		t.Errorf("less than no rounds: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := y.Echo(ctx, channel.High, -1); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestReports: the receiver's count of drops reaches the sender's Rate.
func TestReports(t *testing.T) {
	x, y := openPair(t, "", nil)
	if err := y.ReportDrops(); err != nil {
		t.Fatal(err)
	}
	m, err := x.Wait(contextFor(t))
	if err != nil {
		t.Fatal(err)
	}
	if drops, err := x.ReadReport(m); drops != 0 || err != nil {
		t.Error(drops, err)
	}
	for words, value := range map[int]byte{1: 0xff, 2: 0} { // no count, and no report
		y.SendPages().Put(0, bytes.Repeat([]byte{value}, 16))
		if err := y.Send(channel.High, 0, words); err != nil {
			t.Fatal(err)
		}
		m, err := x.Wait(contextFor(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.ReadReport(m); !errors.Is(err, via.ErrProtocol) {
			t.Errorf("%d words of %#x: %v", words, value, err)
		}
	}
}

// TestRateBounds: bounds that make no sense still are a rate.
func TestRateBounds(t *testing.T) {
	for _, b := range [][2]float64{{0, 0}, {-5, 10}, {100, 10}, {math.NaN(), math.NaN()}, {math.Inf(-1), 5}} {
		r := channel.NewRate(b[0], b[1])
		for range 20 {
			r.Report(0)
		}
		if v := r.BytesPerSecond(); !(v >= 1 && v <= 100) {
			t.Errorf("%v: %v bytes per second", b, v)
		}
		if r.Delay(0, 1) != 0 || r.Delay(0, 1) <= 0 {
			t.Errorf("%v: no rate", b)
		}
	}
}

// TestRate plays a receiver that drops what exceeds its capacity: the rate finds that, and
// stays between its bounds.
func TestRate(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const least, most = 1e6, 100e6
		capacity := rapid.Float64Range(2*least, most).Draw(r, "bytes per second")
		rate := channel.NewRate(least, most)
		var w descriptors.ReceiveWord
		now, sum, rounds := time.Duration(0), 0.0, 0
		for i := range 400 {
			const interval = 10 * time.Millisecond
			sent := 0.0
			for end := now + interval; now < end; sent += 1000 {
				now += rate.Delay(now, 1000)
			}
			if got := sent / interval.Seconds(); got > rate.BytesPerSecond()*1.2+2e5 {
				r.Fatalf("%v bytes per second at a rate of %v", got, rate.BytesPerSecond())
			}
			over := int((sent - capacity*interval.Seconds()) / descriptors.CellPayload)
			for range min(over, 500) {
				w.Drop()
			}
			lost := rate.Report(w.Drops)
			if want := max(0, min(over, 500)); lost != want {
				r.Fatalf("%d of %d drops were seen", lost, want)
			}
			if v := rate.BytesPerSecond(); v < least || v > most {
				r.Fatalf("rate %v", v)
			}
			if i >= 100 {
				sum, rounds = sum+min(sent/interval.Seconds(), capacity), rounds+1
			}
		}
		if mean := sum / float64(rounds); mean < 0.4*capacity {
			r.Fatalf("%v bytes per second get through of %v", mean, capacity)
		}
	})
}
