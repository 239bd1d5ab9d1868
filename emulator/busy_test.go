package emulator_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// busyWire keeps an engine in a step from hold to release.
type busyWire struct {
	*wire.Memory
	mu   sync.Mutex
	held chan struct{} // closed once the engine waits; nil: it need not
	end  chan struct{}
}

func (w *busyWire) hold() {
	w.mu.Lock()
	w.held, w.end = make(chan struct{}), make(chan struct{})
	held := w.held
	w.mu.Unlock()
	<-held
}

func (w *busyWire) release() { close(w.end) }

func (w *busyWire) Receive() []byte {
	w.mu.Lock()
	held, end := w.held, w.end
	w.held = nil
	w.mu.Unlock()
	if held != nil {
		close(held)
		<-end
	}
	return w.Memory.Receive()
}

// TestConfigurationWhileBusy: configuration space, regions and interrupts are told at once
// while the engine is in a step and a change of mappings waits for it.
func TestConfigurationWhileBusy(t *testing.T) {
	m := must.Get(wire.NewLoopback(wire.MemoryOptions{}))(t)
	w := &busyWire{Memory: m}
	d := newDevice(t, func(o *emulator.Options) { o.Wire, o.Thread = w, true })
	powerUp(t, d)
	mem := newMemory(t, 4096)
	for name, change := range map[string]func() error{
		"map":          func() error { return d.MapDMA(mem, 0x10000, vfio.DMARead) },
		"map window":   func() error { return d.MapWindow(0x20000, mem.Bytes(), vfio.DMARead) },
		"unmap window": func() error { return d.UnmapWindows(0x20000, 0x20fff) },
		"counter": func() error {
			return d.ReadRegion(vfio.RegionBAR0, datasheet.CounterOffset+datasheet.RegCounterBase, make([]byte, 4))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.hold()
			changed := make(chan error, 1)
			go func() { changed <- change() }()
			told := make(chan uint16, 1)
			go func() {
				time.Sleep(time.Millisecond) // change waits by now; if not, the test is only weaker
				for index := range d.Info().Regions {
					_, _ = d.Region(index)
				}
				_, _ = d.IRQ(vfio.IRQMSIX)
				told <- readConfig16(t, d, configCommand)
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			select {
			case v := <-told:
				should.Be(t, v, commandMemory|commandBusMaster, "command register")
			case <-ctx.Done():
				t.Error("nothing is told while the engine is busy")
			}
			w.release()
			should.OK(t, <-changed)
		})
	}
}
