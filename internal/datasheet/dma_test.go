package datasheet_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

func TestPulseWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number, bytes := rapid.Uint32().Draw(t, "frame"), rapid.Uint32Range(0, PulseBytes).Draw(t, "bytes")
		v := PulseWord(number, bytes)
		if f, n := SplitPulse(v); f != uint8(number) || n != bytes {
			t.Fatalf("%#x splits into frame %d, %d bytes", v, f, n)
		}
		if v&PulseBytes != bytes || v&PulseFrame>>24 != number&0xff {
			t.Fatalf("%#x does not have its fields where the masks are", v)
		}
	})
}

// TestProgressIsReadWhole makes one goroutine write counters that belong together
// and others read them: what Load calls good was written by one Store.
func TestProgressIsReadWhole(t *testing.T) {
	const enough = 300 // different counters that each reader has to see
	p := ProgressAt(alignedBytes(ProgressSize, 0))
	var reading atomic.Int32
	var readers sync.WaitGroup
	for range 2 {
		reading.Add(1)
		readers.Go(func() {
			defer reading.Add(-1)
			var got Progress
			last := uint32(0)
			for seen := 0; seen < enough; {
				if !p.Load(&got) || got.Frame == last {
					runtime.Gosched()
					continue
				}
				n := got.Frame
				if got.Length != 2*n || got.Arrived != 3*n || got.Sent != 4*n || got.Queued != 5*n || got.Flags != n&1 ||
					got.Sequence != 2*n || n < last {
					t.Errorf("read %+v after counters %d", got, last)
					return
				}
				last = n
				seen++
			}
		})
	}
	var mine Progress
	for n := uint32(1); reading.Load() > 0; n++ {
		mine.Frame, mine.Length, mine.Arrived, mine.Sent, mine.Queued, mine.Flags = n, 2*n, 3*n, 4*n, 5*n, n&1
		p.Store(&mine)
		if n%64 == 0 {
			runtime.Gosched()
		}
	}
	readers.Wait()
}

func TestProgressThatIsBeingWritten(t *testing.T) {
	p := ProgressAt(alignedBytes(ProgressSize, 0))
	var got Progress
	p.Sequence, p.Frame = 7, 3
	if p.Load(&got) {
		t.Error("counters with an odd sequence pass for good")
	}
	mine := Progress{Sequence: 7, Frame: 9}
	p.Store(&mine)
	if !p.Load(&got) || got.Frame != 9 || got.Sequence != 8 {
		t.Errorf("read %+v", got)
	}
}
