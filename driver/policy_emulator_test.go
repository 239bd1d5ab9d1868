package driver_test

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/vfio"
)

// deaf is a device that does not hear the host's pulses: as if the host were
// dead, or the bus lost them.
type deaf struct {
	*emulator.Device
	hears atomic.Bool
}

func (d *deaf) WriteRegion(index int, offset uint64, p []byte) error {
	if index == vfio.RegionBAR0 && !d.hears.Load() &&
		(offset == datasheet.DMAOffset+datasheet.RegPulseTx || offset == datasheet.DMAOffset+datasheet.RegPulseRx) {
		return nil
	}
	return d.Device.WriteRegion(index, offset, p)
}

func (d *deaf) engine(t *testing.T, e datasheet.DMAEngine) datasheet.DMAState {
	t.Helper()
	var b [4]byte
	at := uint64(datasheet.DMAOffset + datasheet.DMAEngineBase + uint32(e)*datasheet.DMAEngineSize + datasheet.EngineRegState)
	must.OK(t, d.ReadRegion(vfio.RegionBAR0, at, b[:]))
	return datasheet.DMAState(binary.LittleEndian.Uint32(b[:]))
}

// newDeaf opens a pair whose first device hears no pulses, with policies at the
// host.
func newDeaf(t *testing.T, deadline time.Duration) (d *deaf, a, b *driver.NIC) {
	t.Helper()
	checkLeaks(t)
	x, y := devices(t, emulator.PairOptions{})
	d = &deaf{Device: x}
	a, b = open(t, d, driver.Options{}), open(t, y, driver.Options{})
	must.OK(t, a.SetPolicy(driver.Policy{At: driver.AtHost, Deadline: deadline}))
	return d, a, b
}

// TestHostIsSilent: what the host does not say in time the device decides by
// itself, frame by frame; messages arrive.
func TestHostIsSilent(t *testing.T) {
	d, a, b := newDeaf(t, time.Millisecond)
	traffic(t, a, b, 3)
	s := mustState(t, a)
	if s.Timeouts == 0 || s.At != driver.AtHost || s.Pump.BadProgress != 0 || s.Deadline != time.Millisecond {
		t.Errorf("%+v", s)
	}
	d.hears.Store(true)
	traffic(t, a, b, 3)
	if after := mustState(t, a); after.Pump.Frames == s.Pump.Frames {
		t.Errorf("%+v", after)
	}
}

// TestCloseWithHeldFrame closes NICs, and changes the policy, while a frame is
// held that the device would hold for a minute.
func TestCloseWithHeldFrame(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, d *deaf, a, b *driver.NIC){
		"close": func(t *testing.T, d *deaf, a, b *driver.NIC) {
			should.OK(t, a.Close())
		},
		"peer closes": func(t *testing.T, d *deaf, a, b *driver.NIC) {
			should.OK(t, b.Close())
		},
		"policy at the NIC": func(t *testing.T, d *deaf, a, b *driver.NIC) {
			should.OK(t, a.SetPolicy(driver.Policy{}))
			traffic(t, a, b, 1)
		},
		"removed": func(t *testing.T, d *deaf, a, b *driver.NIC) { d.Remove() },
	} {
		t.Run(name, func(t *testing.T) {
			d, a, b := newDeaf(t, time.Minute)
			postOne(t, a, b)
			waittest.Until(t, "a frame is held", func() bool {
				a.Poll()
				return d.engine(t, datasheet.EngineNetTx) == datasheet.DMAWaits
			})
			end(t, d, a, b)
		})
	}
}

// TestPolicyConcurrent changes policies and places, and reads log and state,
// from several goroutines while messages flow and until the NICs are closed.
func TestPolicyConcurrent(t *testing.T) {
	for name, options := range map[string]emulator.PairOptions{"inline": {}, "threads": emulator.PairOptions{Threads: true}} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			_, _, a, b := newPair(t, options)
			var changing sync.WaitGroup
			policies := []driver.Policy{{}, {At: driver.AtHost}, {Name: "static"}, {Name: "auto", At: driver.AtHost}, {Name: "warp"}}
			for _, n := range []*driver.NIC{a, b} {
				for _, do := range []func(i int) error{
					func(i int) error { return n.SetPolicy(policies[i%len(policies)]) },
					func(int) error { _, err := n.Policy(); return err },
					func(i int) error { return n.EnableDMALog(16 << (i % 4)) },
					func(int) error { _, err := n.ReadDMALog(make([]dmalog.Record, 50)); return err },
					func(int) error { return n.DisableDMALog() },
				} {
					changing.Go(func() {
						for i := 0; ; i++ {
							err := do(i)
							switch {
							case errors.Is(err, descriptors.ErrClosed):
								return
							case err != nil && !errors.Is(err, pipeline.ErrUnknownPolicy) && !errors.Is(err, descriptors.ErrInvalidState):
								t.Error(err)
								return
							}
							time.Sleep(100 * time.Microsecond) // that messages get through
						}
					})
				}
			}
			traffic(t, a, b, 30)
			should.OK(t, errors.Join(a.Close(), b.Close()))
			changing.Wait()
		})
	}
}
