package load_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/failure"
)

var brief = load.Options{Timeout: 20 * time.Millisecond}

func TestLoadAndRollback(t *testing.T) {
	nic := newFakeNIC()
	should.Refuse(load.Rollback(context.Background(), nic, brief))(t, load.ErrNoPrevious, "rollback of nothing")
	var last, total int
	after, err := load.Load(context.Background(), nic, image(t, "one", "1.0", 1), load.Options{Progress: func(d, n int) { last, total = d, n }})
	must.Hold(t, err == nil && after.Name == "one" && after.Slots.Active == 0 && last == total && total != 0,
		"%+v, %v; progress %d of %d", after, err, last, total)
	mustLoad(t, nic, image(t, "two", "2.0", 2))
	after, err = load.Rollback(context.Background(), nic, brief)
	must.Give(after.Name, err)(t, "one", "%+v", after)
	if after, err = load.Rollback(context.Background(), nic, brief); err != nil || after.Name != "two" {
		t.Fatalf("rolled back twice: %+v, %v", after, err)
	}
	after, err = load.Unload(nic)
	must.Hold(t, err == nil && after.State == datasheet.ProcessorBuiltIn, "%+v, %v", after, err)
}

func TestLoadRefuses(t *testing.T) {
	good := image(t, "new", "2.0", 2)
	for _, tt := range []struct {
		name  string
		spoil func(nic *fakeNIC, img *load.Image)
		want  error
		step  string
	}{
		{"another ABI", func(_ *fakeNIC, img *load.Image) { img.ABI = 2 << 16 }, load.ErrABI, "look at the processor"},
		{"a later ABI", func(_ *fakeNIC, img *load.Image) { img.ABI++ }, load.ErrABI, "look at the processor"},
		{"another device", func(_ *fakeNIC, img *load.Image) { img.Device++ }, load.ErrDevice, "look at the processor"},
		{"too much SRAM", func(_ *fakeNIC, img *load.Image) { img.SRAM = fakeSize + 1 }, load.ErrSRAM, "look at the processor"},
		{"no bytes", func(_ *fakeNIC, img *load.Image) { img.Bytes = nil }, load.ErrImage, "look at the processor"},
		{"more bytes than SRAM", func(_ *fakeNIC, img *load.Image) { img.SRAM = uint32(len(img.Bytes)) - 1 }, load.ErrImage, "look at the processor"},
		{"reads back wrong", func(nic *fakeNIC, _ *load.Image) { nic.flip = true }, load.ErrReadBack, "read the image back"},
		{"never ready", func(nic *fakeNIC, _ *load.Image) { nic.mute = true }, load.ErrNotReady, "wait for the image"},
		{"wrong version", func(nic *fakeNIC, _ *load.Image) { nic.wrong = true }, load.ErrReport, "compare what runs"},
		{"wrong digest", func(_ *fakeNIC, img *load.Image) { img.Digest[3] ^= 1 }, load.ErrReport, "compare what runs"},
		{"wrong ready word", func(nic *fakeNIC, _ *load.Image) {
			nic.lies = map[uint32]uint32{datasheet.RegProcessorReady: 5}
		}, load.ErrNotReady, "wait for the image"},
		{"entry does not stick", func(nic *fakeNIC, _ *load.Image) {
			nic.lies = map[uint32]uint32{datasheet.RegProcessorEntry: 12}
		}, load.ErrRegisters, "set the entry"},
		{"unknown state", func(nic *fakeNIC, _ *load.Image) {
			nic.lies = map[uint32]uint32{datasheet.RegProcessorStatus: 9}
		}, load.ErrRegisters, "look at the processor"},
		{"one slot", func(nic *fakeNIC, _ *load.Image) {
			nic.lies = map[uint32]uint32{datasheet.RegSlotCount: 1}
		}, load.ErrRegisters, "look at the processor"},
		{"slots beyond 4 GiB", func(nic *fakeNIC, _ *load.Image) {
			nic.lies = map[uint32]uint32{datasheet.RegSlotBase: 0xfffff000}
		}, load.ErrRegisters, "look at the processor"},
		{"active slot unknown", func(nic *fakeNIC, _ *load.Image) {
			nic.lies = map[uint32]uint32{datasheet.RegActiveSlot: 2}
		}, load.ErrRegisters, "look at the processor"},
		{"gone", func(nic *fakeNIC, _ *load.Image) {
			nic.before = func(int) error { return errUnplugged }
		}, load.ErrGone, "look at the processor"},
		{"damaged on the way", func(_ *fakeNIC, img *load.Image) {
			img.Bytes = bytes.Clone(img.Bytes)
			img.Bytes[200] ^= 1
		}, nil, "wait for the image"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nic, img := newFakeNIC(), good
			mustLoad(t, nic, image(t, "old", "1.0", 1))
			tt.spoil(nic, &img)
			_, err := load.Load(context.Background(), nic, img, brief)
			var failed *load.Error
			var at *failure.Error
			must.Hold(t, errors.As(err, &failed) && errors.As(err, &at) && at.Op == tt.step, "got %v, want a failure to %s", err, tt.step)
			should.Hold(t, tt.want == nil || errors.Is(err, tt.want), "got %v, want %v", err, tt.want)
			var refused *load.ProcessorError
			should.Hold(t, tt.want != nil || errors.As(err, &refused), "got %v, want the processor's word", err)
			nic.lies, nic.before = nil, nil
			nic.checkWorks(t, failed.Outcome)
		})
	}
}

// TestRegistersOfAllOnes has registers read as all ones that may hold anything. By
// PROC_STATUS the NIC is there: its status can be read, an image loaded and, if
// that fails, the old one started again.
func TestRegistersOfAllOnes(t *testing.T) {
	nic := newFakeNIC()
	nic.entry = 0xffffffff
	s, err := load.ReadStatus(nic)
	should.OK(t, err)
	mustLoad(t, nic, image(t, "old", "1.0", 1))
	nic.entry = 0xffffffff
	nic.flip = true
	_, err = load.Load(t.Context(), nic, image(t, "new", "1.0", 2), load.Options{})
	should.Hold(t, errors.Is(err, load.ErrReadBack), "a load with PROC_ENTRY of all ones: %v", err)
	nic.flip = false
	bad := image(t, "new", "1.0", 2)
	bad.Digest[3] ^= 1
	_, err = load.Load(t.Context(), nic, bad, load.Options{})
	var failure *load.Error
	should.Hold(t, errors.As(err, &failure) && failure.Outcome == load.OutcomeRestored && failure.Restore == nil,
		"the old image is not started again after PROC_ENTRY was overwritten: %v", err)
	nic.lies = map[uint32]uint32{datasheet.RegProcessorDevice: 0xffffffff, datasheet.RegProcessorName: 0xffffffff}
	if s, err = load.ReadStatus(nic); err != nil || s.Device != 0xffffffff {
		t.Errorf("status with PROC_DEVICE %#x: %v", s.Device, err)
	}
	// A register of which other values are impossible names itself.
	nic.lies = map[uint32]uint32{datasheet.RegSlotCount: 0xffffffff}
	if _, err = load.ReadStatus(nic); !errors.Is(err, load.ErrRegisters) || !strings.Contains(err.Error(), "SLOT_COUNT") {
		t.Errorf("SLOT_COUNT of all ones: %v", err)
	}
	nic.lies = map[uint32]uint32{datasheet.RegProcessorStatus: 0xffffffff}
	_, err = load.ReadStatus(nic)
	should.Hold(t, errors.Is(err, load.ErrGone), "PROC_STATUS of all ones: %v", err)
}

// checkWorks checks that the NIC is in a state that an outcome promises.
func (f *fakeNIC) checkWorks(t should.TB, o load.Outcome) {
	switch {
	case o == load.OutcomeUnknown:
		// The NIC could not be reached: either its program still runs, or the hold
		// limit ends a halt.
	case f.state == datasheet.ProcessorBuiltIn:
		should.Hold(t, o == load.OutcomeBuiltIn || o == load.OutcomeUntouched, "built-in behaviour, but the outcome is: %s", o)
	case f.state != datasheet.ProcessorRunning || f.image == nil:
		t.Error("the processor is", f.state, "but the outcome is:", o)
	case o != load.OutcomeUntouched && o != load.OutcomeRestored:
		t.Error("an image runs; the outcome is:", o)
	}
}

// cuts are what can end a load.
var cuts = []struct {
	name string
	// hit is called before access n when the cut comes at access at.
	hit func(f *fakeNIC, n, at int, cancel func()) error
}{
	{"one access fails", func(_ *fakeNIC, n, at int, _ func()) error {
		if n == at {
			return errBus
		}
		return nil
	}},
	{"all accesses fail", func(_ *fakeNIC, n, at int, _ func()) error {
		if n >= at {
			return errBus
		}
		return nil
	}},
	{"surprise removal", func(_ *fakeNIC, n, at int, _ func()) error {
		if n >= at {
			return errUnplugged
		}
		return nil
	}},
	{"power loss", func(f *fakeNIC, n, at int, _ func()) error {
		if n == at {
			f.powerLoss()
		}
		return nil
	}},
	{"interrupted", func(_ *fakeNIC, n, at int, cancel func()) error {
		if n == at {
			cancel()
		}
		return nil
	}},
}

// TestCutAtEveryAccess cuts a load off at each access to the NIC, with and without
// an image that ran before.
func TestCutAtEveryAccess(t *testing.T) {
	old, next := image(t, "old", "1.0", 1), image(t, "new", "2.0", 2)
	for _, cut := range cuts {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, old image %v", cut.name, before), func(t *testing.T) {
				for at := 0; ; at++ {
					nic := newFakeNIC()
					if before {
						mustLoad(t, nic, old)
					}
					nic.accesses = 0
					ctx, cancel := context.WithCancel(context.Background())
					hits := 0
					nic.before = func(n int) error {
						if n == at {
							hits++
						}
						return cut.hit(nic, n, at, cancel)
					}
					_, err := load.Load(ctx, nic, next, brief)
					cancel()
					nic.before = nil
					afterCut(t, nic, cut.name, err, before, at)
					if t.Failed() || hits == 0 {
						should.Hold(t, at >= 20, "only %d accesses were cut", at)
						return
					}
				}
			})
		}
	}
}

func afterCut(t *testing.T, nic *fakeNIC, cut string, err error, before bool, at int) {
	t.Helper()
	var failure *load.Error
	switch {
	case err == nil:
		if nic.state != datasheet.ProcessorRunning || nic.image.Name != "new" {
			if cut == "power loss" {
				return // it came after the last look
			}
			t.Errorf("cut at %d: success, but the NIC has %v", at, nic.state)
		}
		return
	case !errors.As(err, &failure):
		t.Errorf("cut at %d: %v", at, err)
		return
	}
	if cut == "power loss" {
		if nic.state == datasheet.ProcessorHalted || nic.state == datasheet.ProcessorStarting || nic.state == datasheet.ProcessorFaulted {
			t.Errorf("cut at %d: the NIC is %s after power came back (%v)", at, nic.state, err)
		}
		return
	}
	nic.checkWorks(t, failure.Outcome)
	should.Hold(t, !before || failure.Outcome != load.OutcomeUntouched || nic.state == datasheet.ProcessorRunning,
		"cut at %d: %v, but the processor is %s", at, err, nic.state)
	if before && (failure.Outcome == load.OutcomeUntouched || failure.Outcome == load.OutcomeRestored) && nic.image.Name != "old" {
		t.Errorf("cut at %d: %v, but %s runs", at, err, nic.image.Name)
	}
	// Whatever happened, the next load works.
	_, err = load.Load(context.Background(), nic, image(t, "next", "3.0", 3), brief)
	should.Hold(t, err == nil, "cut at %d: a load after that: %v", at, err)
}

// TestRandomFailures lets any accesses fail: the outcome tells the truth.
func TestRandomFailures(t *testing.T) {
	old, next := image(t, "old", "1.0", 1), image(t, "new", "2.0", 2)
	rapid.Check(t, func(rt *rapid.T) {
		nic := newFakeNIC()
		mustLoad(t, nic, old)
		nic.accesses = 0
		bad := rapid.SliceOfN(rapid.IntRange(0, 200), 0, 6).Draw(rt, "failing accesses")
		nic.before = func(n int) error {
			for _, b := range bad {
				if b == n {
					return errBus
				}
			}
			return nil
		}
		_, err := load.Load(context.Background(), nic, next, brief)
		nic.before = nil
		var failure *load.Error
		if err == nil {
			must.Hold(rt, nic.state == datasheet.ProcessorRunning && nic.image.Name == "new", "success, but the NIC is %s", nic.state)
			return
		}
		must.Hold(rt, errors.As(err, &failure), "%v", err)
		nic.checkWorks(rt, failure.Outcome)
		_, err = load.Load(context.Background(), nic, image(t, "next", "3.0", 3), brief)
		must.Hold(rt, err == nil, "a load after %v: %v", failure, err)
	})
}
