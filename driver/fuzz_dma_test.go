package driver_test

import (
	"encoding/binary"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// words reads little-endian words from fuzzed bytes, as many as there are.
func words(b []byte) []uint32 {
	var w []uint32
	for ; len(b) >= 4; b = b[4:] {
		w = append(w, binary.LittleEndian.Uint32(b))
	}
	return w
}

// FuzzProgress lets the device write anything into its progress counters, six
// words for each state. Whatever it says, no pulse allows more of a frame than
// the device says has arrived of it, and none is for another frame.
func FuzzProgress(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Fuzz(func(t *testing.T, states []byte, policy uint8) {
		names := driver.HostPolicies()
		d := newFake(t)
		d.addDMA()
		n := must.Get(driver.New(t.Context(), d, driver.Options{Logger: quiet}))(t)
		defer func() {
			should.OK(t, n.Close())
		}()
		// What was shown, the last first to be looked at: the pump's own goroutine may
		// be late with its answer to an earlier one, which devices know by its frame.
		shown := []shownProgress{{}}
		d.with(func() {
			d.block.pulse = func(lane int, frame uint8, bytes uint32) {
				if lane != 0 || bytes == 0 {
					t.Errorf("lane %d: a pulse of %d bytes", lane, bytes)
				}
				for i := len(shown) - 1; i >= 0; i-- {
					if shown[i].allows(frame, bytes) {
						return
					}
				}
				t.Errorf("a pulse of %d bytes for frame %d fits nothing of %+v", bytes, frame, shown)
			}
		})
		must.OK(t, n.SetPolicy(driver.Policy{Name: names[int(policy)%len(names)], At: driver.AtHost}))
		for w := words(states); len(w) >= 6; w = w[6:] {
			d.with(func() {
				next := datasheet.Progress{Frame: w[0], Length: w[1], Arrived: w[2], Sent: w[3], Queued: w[4], Flags: w[5]}
				last, s := shown[len(shown)-1], shownProgress{Progress: next}
				if next.Frame == last.Frame && next.Flags&last.Flags&datasheet.ProgressActive != 0 {
					s.allowed = last.allowed
				}
				shown = append(shown, s)
				d.show(0, next)
			})
			// Seen by this poll or by the pump's own goroutine before it.
			for range 3 {
				n.Poll()
			}
		}
	})
}

// shownProgress is what a device has shown, and how many bytes were allowed since.
type shownProgress struct {
	datasheet.Progress
	allowed uint32
}

// allows reports whether a pulse may follow from s, and counts it.
func (s *shownProgress) allows(frame uint8, bytes uint32) bool {
	if frame != uint8(s.Frame) || s.allowed+bytes > s.Arrived || s.Arrived > s.Length || s.Sent > s.Arrived {
		return false
	}
	s.allowed += bytes
	return true
}

// FuzzDMALog lets the device write anything into the log. What is read can be
// written to a file.
func FuzzDMALog(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, ring []byte) {
		d := newFake(t)
		d.addDMA()
		n := must.Get(driver.New(t.Context(), d, driver.Options{Logger: quiet}))(t)
		defer func() {
			should.OK(t, n.Close())
		}()
		must.OK(t, n.EnableDMALog(16))
		d.with(func() {
			copy(d.memory(d.pair(datasheet.RegLogBaseLow), 16*datasheet.DMARecordSize), ring)
		})
		p := make([]dmalog.Record, 40)
		total := 0
		for {
			got, err := n.ReadDMALog(p)
			for _, r := range p[:got] {
				if r.Engine >= dmalog.Engines || r.Start < 0 || r.End < r.Start || r.Packet < 0 || r.Bytes < 0 || r.Bytes > datasheet.MaxTransfer {
					t.Fatalf("%+v", r)
				}
			}
			if total += got; total > 16 {
				t.Fatalf("%d records from a ring of 16", total)
			}
			if got == 0 || err != nil {
				break
			}
		}
	})
}
