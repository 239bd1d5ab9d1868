package kernel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
)

// next returns the next alert.
func next(t *testing.T, d *Device) error {
	t.Helper()
	select {
	case err, ok := <-d.Alerts():
		must.Hold(t, ok, "the alerts are over")
		return err
	case <-withTimeout(t).Done():
		t.Fatal("no alert")
	}
	return nil
}

// TestErrorAlert: PCI Express reports errors, several times; the device stays.
func TestErrorAlert(t *testing.T) {
	forEachBackend(t, func(t *testing.T, k *fake, d *Device) {
		for range 2 {
			must.OK(t, k.functions[nic].fire(k, vfio.IRQErr, 0))
			err := next(t, d)
			should.Fail(t, err, ErrDeviceFault, "alert")
			says(t, err, nic, "reset it")
		}
		should.OK(t, d.Reset(withTimeout(t)))
	})
}

// TestRequestAlert: the kernel wants the device back, and the holder closes it.
func TestRequestAlert(t *testing.T) {
	forEachBackend(t, func(t *testing.T, k *fake, d *Device) {
		must.OK(t, k.functions[nic].fire(k, vfio.IRQReq, 0))
		err := next(t, d)
		should.Fail(t, err, vfio.ErrDeviceGone, "alert")
		says(t, err, nic, "close it")
		// There is time left to put things in order.
		_, err = d.Region(0)
		should.OK(t, err)
		should.OK(t, d.Close())
		_, open := <-d.Alerts()
		should.Hold(t, !open, "an alert after Close")
	})
}

// TestRevoke: the holder does not close the device, so it is taken away.
func TestRevoke(t *testing.T) {
	for _, b := range backends {
		t.Run(b, func(t *testing.T) {
			checkFiles(t)
			tr := machine(t)
			k, h := openFake(t, tr)
			if b == backendNoIOMMU {
				unguard(tr)
				k.viable[0] = true
			}
			h.grace = time.Millisecond
			d := mustOpen(t, h, "pci:"+nic+"?backend="+b)
			mem := alloc(t, 4096)
			if b != backendNoIOMMU {
				must.OK(t, d.MapDMA(mem, 0x1000, both))
			}
			m := must.Get(d.MapRegion(0, 0, 8192))(t)
			registers := m.Bytes()
			must.OK(t, k.functions[nic].fire(k, vfio.IRQReq, 0))
			should.Fail(t, next(t, d), vfio.ErrDeviceGone, "alert")
			waittest.Until(t, "the device is taken away", func() bool {
				_, err := d.Region(0)
				return errors.Is(err, vfio.ErrDeviceGone)
			})
			if slices.ContainsFunc(registers, func(b byte) bool { return b != 0xff }) {
				t.Error("mapped registers do not read as all ones")
			}
			registers[0] = 1 // harms nobody
			k.mu.Lock()
			for fd, h := range k.fds {
				t.Errorf("descriptor %d of a %s is open", fd, h.kind)
			}
			k.mu.Unlock()
			should.Hold(t, len(h.domains)+len(h.devices) == 0, "the host remembers it")
			for what, err := range allCalls(t, d, mem) {
				should.Fail(t, err, vfio.ErrDeviceGone, "%s", what)
			}
			should.OK(t, d.Close())
			should.Hold(t, m.Bytes() == nil, "the mapping is still there after Close")
		})
	}
}

// allCalls makes each call that can fail and returns with what it did.
func allCalls(t *testing.T, d *Device, mem *vfio.Memory) map[string]error {
	t.Helper()
	fd := eventfd(t)
	calls := map[string]error{
		"ReadRegion":  d.ReadRegion(0, 0, make([]byte, 4)),
		"WriteRegion": d.WriteRegion(0, 0, make([]byte, 4)),
		"SetIRQs":     d.SetIRQs(vfio.IRQMSIX, 0, []int{fd.FD()}),
		"DisableIRQs": d.DisableIRQs(vfio.IRQMSIX),
		"MapDMA":      d.MapDMA(mem, 0x1000, both),
		"UnmapDMA":    d.UnmapDMA(0x1000, 4096),
		"Reset":       d.Reset(context.Background()),
	}
	_, calls["Region"] = d.Region(0)
	_, calls["IRQ"] = d.IRQ(0)
	_, calls["MapRegion"] = d.MapRegion(0, 0, 4096)
	_, calls["IOVARanges"] = d.IOVARanges()
	_, calls["PhysicalAddress"] = d.PhysicalAddress(mem)
	return calls
}

func TestClosed(t *testing.T) {
	forEachBackend(t, func(t *testing.T, _ *fake, d *Device) {
		before := d.Info()
		for range 2 {
			must.OK(t, d.Close())
		}
		for what, err := range allCalls(t, d, alloc(t, 4096)) {
			should.Fail(t, err, vfio.ErrClosed, "%s", what)
		}
		should.Be(t, d.Info(), before, "Info changed")
	})
}

// TestAlertsNobodyReceives do not hold the device up.
func TestAlertsNobodyReceives(t *testing.T) {
	k, d := ready(t, backendCdev)
	for range 20 {
		must.OK(t, k.functions[nic].fire(k, vfio.IRQErr, 0))
		time.Sleep(time.Millisecond)
	}
	must.OK(t, d.Close())
	n := 0
	for range d.Alerts() {
		n++
	}
	should.Hold(t, n != 0 && n <= 20, "%d alerts", n)
}

// TestConcurrency uses a device from many goroutines while it is closed, or
// taken away.
func TestConcurrency(t *testing.T) {
	for _, taken := range []bool{false, true} {
		name := "closed"
		if taken {
			name = "taken away"
		}
		t.Run(name, func(t *testing.T) {
			checkFiles(t)
			k, h := openFake(t, machine(t))
			h.grace = time.Millisecond
			d := mustOpen(t, h, "pci:"+nic)
			var wait sync.WaitGroup
			for i := range 8 {
				mem, fd := alloc(t, 4096), eventfd(t)
				wait.Go(func() {
					for {
						iova := uint64(0x1000 * (i + 1))
						if err := d.MapDMA(mem, iova, both); err != nil {
							return
						}
						if m, err := d.MapRegion(0, 0, 4096); err == nil {
							_ = m.Close()
						}
						_ = d.SetIRQs(vfio.IRQMSIX, i, []int{fd.FD()})
						_ = d.ReadRegion(0, 0, make([]byte, 8))
						_ = d.Reset(context.Background())
						if err := d.UnmapDMA(iova, 4096); err != nil {
							return
						}
					}
				})
			}
			time.Sleep(5 * time.Millisecond) // for the goroutines to be anywhere
			if taken {
				should.OK(t, k.functions[nic].fire(k, vfio.IRQReq, 0))
			} else if err := d.Close(); err != nil {
				t.Error(err)
			}
			wait.Wait()
		})
	}
}
