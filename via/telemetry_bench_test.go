package via_test

import (
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/internal/framering"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/via"
)

// block is how much of a processor each side has in its turn in BenchmarkTelemetry: there are some
// reads in it.
const block = 200 * time.Millisecond

// processorTime is what this thread has had of the processors.
func processorTime(b *testing.B) time.Duration {
	var t unix.Timespec
	must.OK(b, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}

// BenchmarkTelemetry sends messages to and fro between NICs that show themselves and between NICs
// that do not, in turns. read has a client ask for all counters each 100 ms, sampled times one
// send in 2^8, captured has a client take each frame. Times are processor time of the thread that
// sends, which other programs disturb less. x-off is the ratio of the medians of both sides: 1.01 is
// 1 % slower.
func BenchmarkTelemetry(b *testing.B) {
	b.Setenv(telemetry.Variable, "test")
	b.Setenv("RUNTIME_DIRECTORY", b.TempDir())
	for _, c := range []struct {
		name    string
		options via.Options
		// client begins what a client does while on is true, for the NIC behind a port.
		client func(b *testing.B, on *atomic.Bool)
	}{
		{"read", via.Options{}, readEach100ms},
		{"sampled", via.Options{SampleLatency: 8}, func(*testing.B, *atomic.Bool) {}},
		{"captured", via.Options{}, takeFrames},
	} {
		for _, size := range []int{64, 4096, 65536} {
			b.Run(c.name+"/"+sizeName(size), func(b *testing.B) {
				x, y := conform.OnMemory(b, "", via.Options{NoTelemetry: true})
				off := newPingPong(b, conform.NewWorld(b, x, y), size)
				x, y = conform.OnMemory(b, "", c.options)
				on := newPingPong(b, conform.NewWorld(b, x, y), size)
				var asking atomic.Bool
				c.client(b, &asking)
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var times [2][]float64
				for b.Loop() {
					for side, p := range []*pingPong{off, on} {
						asking.Store(side == 1)
						rounds, begin, took := 0, processorTime(b), time.Duration(0)
						for ; took < block; took = processorTime(b) - begin {
							for range 100 {
								p.round(b)
							}
							rounds += 100
						}
						times[side] = append(times[side], float64(took.Nanoseconds())/float64(2*rounds))
					}
				}
				for _, t := range times {
					slices.Sort(t)
				}
				b.ReportMetric(times[0][len(times[0])/2], "off-ns/one-way")
				b.ReportMetric(times[1][len(times[1])/2], "on-ns/one-way")
				b.ReportMetric(times[1][len(times[1])/2]/times[0][len(times[0])/2], "x-off")
			})
		}
	}
}

// client is one of this process's socket.
func client(b *testing.B) *telemetry.Client {
	b.Helper()
	for _, path := range telemetry.Find() {
		if strings.Contains(path, "/dpdk/test/") {
			return must.Get(telemetry.Dial(b.Context(), path))(b)
		}
	}
	b.Fatal("there is no socket")
	return nil
}

// shownPort is the number of the first NIC behind the two that are not shown.
const shownPort = "2"

func readEach100ms(b *testing.B, on *atomic.Bool) {
	c := client(b)
	done, ended := make(chan struct{}), make(chan struct{})
	b.Cleanup(func() { close(done); <-ended; c.Close() })
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			var counters map[string]uint64
			if on.Load() && c.Ask(b.Context(), "/ethdev/xstats,"+shownPort, &counters) == nil {
				_, _ = telemetry.Endpoints(b.Context(), c, 2)
			}
		}
	}()
}

func takeFrames(b *testing.B, _ *atomic.Bool) {
	c := client(b)
	var answer telemetry.Capture
	memory, err := c.Borrow(b.Context(), "/trapeze/capture,"+shownPort, &answer)
	if err != nil || memory == nil {
		b.Fatal(answer, err)
	}
	ring := must.Get(framering.NewReader(memory))(b)
	done, ended := make(chan struct{}), make(chan struct{})
	b.Cleanup(func() { close(done); <-ended; c.Close(); _ = unix.Munmap(memory) })
	go func() {
		defer close(ended)
		for {
			if _, ok, err := ring.Next(); err != nil {
				return
			} else if ok {
				continue
			}
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
}
