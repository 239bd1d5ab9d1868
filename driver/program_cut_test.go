package driver_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// meddled is a device to whose accesses of processor and SRAM something happens.
// It stays when a process leaves it.
type meddled struct {
	staying
	accesses atomic.Int64
	// meddle is called before each such access, with its number. An error is the
	// access's.
	meddle atomic.Pointer[func(n int) error]
}

func (m *meddled) access(index int, offset uint64) error {
	processor := index == vfio.RegionBAR0 && offset >= datasheet.ProcessorOffset && offset < datasheet.ProcessorOffset+datasheet.ProcessorSize
	f := m.meddle.Load()
	if f == nil || !processor && index != vfio.RegionBAR4 {
		return nil
	}
	return (*f)(int(m.accesses.Add(1)) - 1)
}

func (m *meddled) ReadRegion(index int, offset uint64, p []byte) error {
	if err := m.access(index, offset); err != nil {
		return err
	}
	return m.staying.ReadRegion(index, offset, p)
}

func (m *meddled) WriteRegion(index int, offset uint64, p []byte) error {
	if err := m.access(index, offset); err != nil {
		return err
	}
	return m.staying.WriteRegion(index, offset, p)
}

// MapRegion would hide accesses from the test.
func (m *meddled) MapRegion(int, uint64, uint64) (*vfio.Mapping, error) {
	return nil, vfio.ErrNotMappable
}

// watch has f meddle with accesses from now on; nil for nobody.
func (m *meddled) watch(f func(n int) error) {
	m.accesses.Store(0)
	if f == nil {
		m.meddle.Store(nil)
		return
	}
	m.meddle.Store(&f)
}

var errBus = errors.New("the bus says no")

// cutting is one load that is cut off.
type cutting struct {
	m      *meddled
	cancel context.CancelFunc
	at     int
}

// cuts are what can end a load at access number at.
var cuts = map[string]func(c *cutting, n int) error{
	"one access fails": func(c *cutting, n int) error {
		if n == c.at {
			return errBus
		}
		return nil
	},
	"all accesses fail": func(c *cutting, n int) error {
		if n >= c.at {
			return errBus
		}
		return nil
	},
	"surprise removal": func(c *cutting, n int) error {
		if n == c.at {
			c.m.Remove()
		}
		return nil
	},
	"reset": func(c *cutting, n int) error {
		if n == c.at {
			return c.m.staying.WriteRegion(vfio.RegionBAR0, datasheet.HealthOffset+datasheet.RegControl, []byte{byte(datasheet.ControlReset), 0, 0, 0})
		}
		return nil
	},
	"function-level reset": func(c *cutting, n int) error {
		if n == c.at {
			return c.m.Device.Reset(context.Background())
		}
		return nil
	},
	"Ctrl-C": func(c *cutting, n int) error {
		if n == c.at {
			c.cancel()
		}
		return nil
	},
}

// TestLoadCutOff cuts a load off at accesses to the device, in a long run at each. What runs then is
// what the error says, and the device works: a process opens it, messages pass, and
// the next load succeeds.
func TestLoadCutOff(t *testing.T) {
	before, next, last := imageOf(t, "amp"), imageOf(t, "count"), imageOf(t, "acl")
	for name, cut := range cuts {
		for _, first := range []string{"first image", "replacement"} {
			t.Run(name+", "+first, func(t *testing.T) {
				checkLeaks(t)
				total, step := 1, 41
				switch {
				case testing.Short():
					step = 97
				case soak.Wanted() && name != "reset": // closing a NIC whose queue is gone takes its time
					step = 1
				}
				for at := 0; at < total; at += step {
					x, y, err := emulator.Pair(emulator.PairOptions{})
					if err != nil {
						t.Fatal(err)
					}
					m := &meddled{staying: staying{x}}
					cutLoad(t, m, y, func(a *driver.NIC) {
						old := ""
						if first != "first image" {
							old = mustLoad(t, a, before).Name
						}
						if total == 1 { // how many accesses a load takes
							m.watch(func(int) error { return nil })
							mustLoad(t, a, next)
							total = int(m.accesses.Load())
							m.watch(nil)
							if _, err := a.RollBackProgram(contextFor(t), load.Options{}); err != nil && old != "" {
								t.Fatal(err)
							}
							if old == "" {
								if _, err := a.UnloadProgram(); err != nil {
									t.Fatal(err)
								}
							}
						}
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						c := &cutting{m, cancel, at}
						m.watch(func(n int) error { return cut(c, n) })
						_, err := a.LoadProgram(ctx, next, load.Options{Timeout: 50 * time.Millisecond})
						m.watch(nil)
						checkCut(t, a, name, at, old, err)
					}, last)
				}
				t.Logf("%d accesses", total)
			})
		}
	}
}

// checkCut compares what runs with what the load that was cut off says.
func checkCut(t *testing.T, a *driver.NIC, name string, at int, old string, cause error) {
	t.Helper()
	s, err := a.ProgramStatus()
	if name == "surprise removal" || name == "function-level reset" {
		if err == nil {
			t.Errorf("access %d: a NIC that is gone says %+v", at, s)
		}
		return
	}
	if name == "reset" && errors.Is(err, driver.ErrDeviceFault) {
		return // the driver has noticed it meanwhile
	}
	if err != nil {
		t.Fatalf("access %d: %v, then %v", at, cause, err)
	}
	var failed *load.Error
	switch {
	case cause == nil:
		if s.Name != "count" || s.State != datasheet.ProcessorRunning {
			t.Errorf("access %d: success, but %+v", at, s)
		}
		return
	case !errors.As(cause, &failed):
		t.Fatalf("access %d: %v", at, cause)
	}
	switch failed.Outcome {
	case load.OutcomeUntouched, load.OutcomeRestored:
		if s.Name != old || (s.State == datasheet.ProcessorRunning) != (old != "") {
			t.Errorf("access %d: %v, but %+v", at, cause, s)
		}
	case load.OutcomeBuiltIn:
		if s.State != datasheet.ProcessorBuiltIn {
			t.Errorf("access %d: %v, but %+v", at, cause, s)
		}
	case load.OutcomeUnknown:
		if !strings.HasPrefix(name, "all ") {
			t.Errorf("access %d: %v, and the NIC can be reached", at, cause)
		}
	}
	if name == "one access fails" && old != "" && failed.Outcome != load.OutcomeUntouched && failed.Outcome != load.OutcomeRestored {
		t.Errorf("access %d: %v", at, cause)
	}
}

// cutLoad opens two devices, has f do something to the first one, and checks that
// both work, with the same NICs and with new ones.
func cutLoad(t *testing.T, m *meddled, y *emulator.Device, f func(a *driver.NIC), last load.Image) {
	t.Helper()
	open := func(d vfio.Device, commands time.Duration) *driver.NIC {
		ctx := contextFor(t)
		for {
			n, err := driver.New(ctx, d, driver.Options{Logger: quiet, CommandTimeout: commands})
			if err == nil {
				return n
			}
			slow := errors.Is(err, driver.ErrNotReady) || errors.Is(err, driver.ErrCommandTimeout)
			if !slow || ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	shut := func(closers ...interface{ Close() error }) {
		for _, c := range closers {
			if err := c.Close(); err != nil && !errors.Is(err, vfio.ErrDeviceGone) {
				t.Error(err)
			}
		}
	}
	defer shut(m.Device, y)
	// So long does it take to close a NIC whose queue is gone.
	const short = 300 * time.Millisecond
	a, b := open(m, short), open(staying{y}, short)
	f(a)
	shut(a, b)
	if err := m.Device.Reset(contextFor(t)); errors.Is(err, vfio.ErrDeviceGone) {
		return
	}
	a, b = open(m, timeout), open(staying{y}, timeout)
	switch s := programOf(t, a); {
	case s.Name == "" && s.State == datasheet.ProcessorBuiltIn:
	case (s.Name == "amp" || s.Name == "count") && s.State == datasheet.ProcessorRunning:
	default:
		t.Errorf("opened again: %+v", s)
	}
	traffic(t, a, b, 1)
	if s := mustLoad(t, a, last); s.Name != "acl" || s.State != datasheet.ProcessorRunning {
		t.Errorf("the load after that: %+v", s)
	}
	traffic(t, a, b, 1)
	shut(a, b)
}
