package driver_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
)

// stream sends messages both ways, many at a time, until during returns: all of
// them arrive whole and in order. Then it counts frames: all that were sent have
// arrived, none of them was dropped on the way.
func stream(t *testing.T, a, b *driver.NIC, during func()) {
	t.Helper()
	const batch = 40
	x, y := connected(t, a, b, layout{depth: half})
	// What happens meanwhile takes as long as it takes.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// A request that comes before anybody waits for it is dropped.
	before := dropped(t, a, b)
	// Whether there is another batch, for each of the four.
	var more [4]chan bool
	for i := range more {
		more[i] = make(chan bool)
	}
	var parts [4]error
	var wg sync.WaitGroup
	start := func(i int, f func() error) {
		wg.Go(func() {
			for range more[i] {
				if parts[i] == nil {
					parts[i] = f()
				}
			}
		})
	}
	for i, way := range [][2]*end{{x, y}, {y, x}} {
		start(2*i, func() error { return sendAll(ctx, way[0], batch) })
		start(2*i+1, func() error { return receiveAll(ctx, way[1], batch) })
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		during()
	}()
	for going := true; going; {
		select {
		case <-done:
			going = false
		default:
		}
		for _, c := range more { // the last batch comes after the end of during
			c <- true
		}
	}
	for _, c := range more {
		close(c)
	}
	wg.Wait()
	if err := errors.Join(parts[:]...); err != nil {
		t.Error(err)
	}
	// Before the VIs go: what is on the way then is for nobody.
	checkFrames(t, a, b, before)
	for _, e := range []*end{x, y} {
		if err := e.v.Abandon(ctx); err != nil {
			t.Error(err)
		}
	}
}

// checkFrames waits until all frames have arrived.
func checkFrames(t *testing.T, a, b *driver.NIC, before uint64) {
	t.Helper()
	ctx := contextFor(t)
	for {
		x, y := counters(t, a), counters(t, b)
		if x["frames_sent"] == y["frames_received"] && y["frames_sent"] == x["frames_received"] {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("frames were lost: %v, %v", x, y)
		}
		a.Poll()
		b.Poll()
	}
	if n := dropped(t, a, b); n != before {
		t.Errorf("%d frames were dropped", n-before)
	}
}

func dropped(t *testing.T, a, b *driver.NIC) uint64 {
	t.Helper()
	return counters(t, a)["frames_dropped"] + counters(t, b)["frames_dropped"]
}

func counters(t *testing.T, n *driver.NIC) map[string]uint64 {
	t.Helper()
	c, err := n.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
