package channel_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestRateBounds: bounds that make no sense still are a rate.
func TestRateBounds(t *testing.T) {
	for _, b := range [][2]float64{{0, 0}, {-5, 10}, {100, 10}, {math.NaN(), math.NaN()}, {math.Inf(-1), 5}} {
		r := channel.NewRate(b[0], b[1])
		for range 20 {
			r.Report(channel.Drops{})
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
		var w datasheet.ReceiveWord
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
			over := int((sent - capacity*interval.Seconds()) / datasheet.CellPayload)
			for range min(over, 500) {
				w.Drop()
			}
			lost := rate.Report(channel.Drops{Cells: int(w.Drops % datasheet.ChannelDropsMany), Many: w.Drops >= datasheet.ChannelDropsMany})
			must.Be(r, lost, max(0, min(over, 500)), "drops were seen")
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

// TestRatePair: two stamps say how fast the path is; the bounds hold.
func TestRatePair(t *testing.T) {
	r := channel.NewRate(1e6, 100e6)
	for _, c := range []struct {
		first, second time.Duration
		want          float64
	}{{0, 100 * time.Microsecond, 48e6}, {time.Second, time.Second, 48e6}, {2, 1, 48e6}, {0, 1, 100e6}, {0, time.Hour, 1e6}} {
		if r.Pair(c.first, c.second, 4800); r.BytesPerSecond() != c.want {
			t.Errorf("%v and %v: %v bytes per second, want %v", c.first, c.second, r.BytesPerSecond(), c.want)
		}
	}
}
