package emulator_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

func TestOptions(t *testing.T) {
	checkFiles(t)
	tests := []struct {
		name   string
		change func(o *emulator.Options)
		err    error
	}{
		{"no wire", func(o *emulator.Options) { o.Wire = nil }, emulator.ErrOptions},
		{"doorbell mode", func(o *emulator.Options) { o.Doorbells = -1 }, emulator.ErrOptions},
		{"SRAM not a power of two", func(o *emulator.Options) { o.SRAM = 5000 }, emulator.ErrOptions},
		{"SRAM too small", func(o *emulator.Options) { o.SRAM = 16 }, emulator.ErrOptions},
		{"SRAM too large", func(o *emulator.Options) { o.SRAM = 1 << 31 }, emulator.ErrOptions},
		{"group MAC", func(o *emulator.Options) { o.MAC = datasheet.Broadcast }, engine.ErrConfig},
		{"no endpoints", func(o *emulator.Options) { o.Limits.Endpoints = 1 }, engine.ErrConfig},
		{"too many vectors", func(o *emulator.Options) { o.Limits.Vectors = datasheet.Vectors + 1 }, engine.ErrConfig},
		{"timing", func(o *emulator.Options) { o.Timing.Dead = 1 }, engine.ErrConfig},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := must.Get(wire.NewLoopback(wire.MemoryOptions{}))(t)
			o := emulator.Options{Name: "emu:test", Wire: w, MAC: datasheet.MAC{2}, Limits: smallLimits}
			tt.change(&o)
			d, err := emulator.New(o)
			if d != nil {
				t.Error("a device in spite of an error")
			}
			wantError(t, "New", err, tt.err)
			if o.Wire != nil && w.LinkUp() {
				t.Error("the wire, which is the device's, was not closed")
			}
		})
	}
}

func TestInfo(t *testing.T) {
	d := newDevice(t, func(o *emulator.Options) { o.MAC = datasheet.MAC{} })
	want := vfio.Info{Address: "emu:", Backend: "emulator", Resettable: true, Regions: 8, IRQs: 5}
	should.Be(t, d.Info(), want)
	if m := d.MAC(); m[0]&3 != 2 {
		t.Errorf("MAC %v is not a locally administered one of a station", m)
	}
}

// TestReset resets a device in use, in both ways.
func TestReset(t *testing.T) {
	// Each returns how many resets it took.
	ways := map[string]func(h *adminHost) uint32{
		"register": func(h *adminHost) uint32 {
			// The reset lasts for 100 us. On a busy machine it may be over before all
			// that happens during it has been looked at: then again.
			const lasts, most = 100 * time.Microsecond, 1000
			var resets uint32
			for inTime := false; !inTime; resets++ {
				if resets == most {
					h.t.Fatalf("%d resets were over too soon", most)
				}
				began := time.Now()
				write32(h.t, h.d, datasheet.HealthOffset+datasheet.RegControl, datasheet.ControlReset)
				s := deviceStatus(h.t, h.d)
				before := counter(h.t, h.d, datasheet.CounterBadRegisterAccesses)
				h.write(datasheet.RegSQBaseLow, 128)
				base, after := h.read(datasheet.RegSQBaseLow), counter(h.t, h.d, datasheet.CounterBadRegisterAccesses)
				if inTime = time.Since(began) < lasts; inTime {
					if s&(datasheet.DeviceReady|datasheet.DeviceResetting) != datasheet.DeviceResetting {
						h.t.Errorf("status %#x right after the reset was written", s)
					}
					if base != 0 || after == before {
						h.t.Error("a register took a write during the reset")
					}
				}
				time.Sleep(time.Millisecond)
			}
			if c := readConfig16(h.t, h.d, configCommand); c != commandMemory|commandBusMaster {
				h.t.Errorf("command register %#x: this reset does not touch configuration space", c)
			}
			return resets
		},
		"function": func(h *adminHost) uint32 {
			must.OK(h.t, h.d.Reset(context.Background()))
			wantDark(h)
			return 1
		},
		"function, by configuration space": func(h *adminHost) uint32 {
			writeConfig16(h.t, h.d, configDevControl, 0x8000)
			wantDark(h)
			time.Sleep(time.Millisecond)
			return 1
		},
	}
	for name, reset := range ways {
		t.Run(name, func(t *testing.T) {
			checkFiles(t)
			d := newDevice(t, nil)
			h := newAdminHost(t, d)
			fd := newEventfd(t)
			must.OK(t, d.SetIRQs(vfio.IRQMSIX, 0, []int{fd.FD()}))
			vi := h.createVI()
			h.listen("somebody") // outstanding
			write(t, d, vfio.RegionBAR2, datasheet.EndpointPage(vi)+0x100, []byte{1, 2, 3, 4})
			h.write(datasheet.RegSQProducer, 999) // a fault
			resets := reset(h)
			powerUp(t, d)
			should.Be(t, deviceStatus(t, d), datasheet.DeviceReady|datasheet.DeviceLinkUp, "status after the reset")
			should.Be(t, read32(t, d, datasheet.HealthOffset+datasheet.RegResetCount), resets, "resets counted")
			should.Be(t, readConfig16(t, d, configMSIXControl)&0x8000, 0, "interrupts are still connected")
			should.Same(t, read(t, d, vfio.RegionBAR2, datasheet.EndpointPage(vi)+0x100, 4), make([]byte, 4), "doorbells")
			// DMA mappings are the IOMMU's and stay: the rings are still there.
			h.enable(0)
			h.nop()
			should.Be(t, h.createVI(), vi, "the first VI after the reset")
			for range 10 {
				d.Poll()
			}
			if e, ok := h.next(); ok {
				t.Errorf("an entry of before the reset: %+v", e)
			}
			should.Be(t, signalled(fd), false, "an interrupt that was disconnected")
		})
	}
}

// wantDark checks that a function reset has turned off memory decoding and bus
// mastering, and left the BARs where they were.
func wantDark(h *adminHost) {
	h.t.Helper()
	should.Be(h.t, readConfig16(h.t, h.d, configCommand), 0, "command register after a function reset")
	should.Be(h.t, readConfig16(h.t, h.d, 0x12), 0xe000, "BAR 0 is at0000")
	should.Be(h.t, read32(h.t, h.d, datasheet.RegMagic), 0xffffffff, "the BARs answer after a function reset")
}

func TestResetContext(t *testing.T) {
	d := newDevice(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	wantError(t, "Reset", d.Reset(ctx), context.Canceled)
	powerUp(t, d)
	should.Be(t, read32(t, d, datasheet.HealthOffset+datasheet.RegResetCount), 0, "a reset that was cancelled before it began took place")
}

func TestRemove(t *testing.T) {
	for name, o := range map[string]emulator.PairOptions{"inline": {}, "thread": emulator.PairOptions{Threads: true}} {
		t.Run(name, func(t *testing.T) {
			checkFiles(t)
			a, b := newPair(t, o)
			h := newAdminHost(t, a)
			h.thread = name == "thread"
			h.nop()
			powerUp(t, b)
			request, vector := newEventfd(t), newEventfd(t)
			must.OK(t, errors.Join(a.SetIRQs(vfio.IRQReq, 0, []int{request.FD()}), a.SetIRQs(vfio.IRQMSIX, 0, []int{vector.FD()})))
			m := must.Get(a.MapRegion(vfio.RegionBAR4, 0, uint64(os.Getpagesize())))(t)
			defer m.Close()
			a.Remove()
			a.Remove()
			for index, size := range map[int]int{vfio.RegionConfig: 64, vfio.RegionBAR0: 4, vfio.RegionBAR2: 4, vfio.RegionBAR4: 16} {
				write(t, a, index, 0, make([]byte, 4))
				should.Same(t, read(t, a, index, 0, size), bytes.Repeat([]byte{0xff}, size), "region %d reads", index)
			}
			should.Be(t, m.Bytes()[77], 0xff, "mapped SRAM does not read all ones")
			should.Be(t, signalled(request), true, "the request interrupt was not signalled")
			should.Be(t, signalled(vector), false, "a device that is not there raises interrupts")
			should.Be(t, linkUp(t, b), false, "the peer's link")
			should.Be(t, a.Poll(), false, "a device that is not there makes progress")
			b.Poll()
			a.SetLink(true)
			should.Be(t, linkUp(t, b), false, "SetLink brought a removed device back")
			wantError(t, "Reset", a.Reset(context.Background()), vfio.ErrDeviceGone)
			// What the host holds can still be given back.
			should.OK(t, errors.Join(a.UnmapDMA(hostBase, h.mem.Size()), a.DisableIRQs(vfio.IRQMSIX)))
			if n := newAdminHost(t, b); n != nil {
				n.thread = h.thread
				n.nop()
			}
		})
	}
}

func TestSetLink(t *testing.T) {
	a, b := newPair(t, emulator.PairOptions{})
	powerUp(t, a)
	powerUp(t, b)
	hosts := []*adminHost{newAdminHost(t, a), newAdminHost(t, b)}
	// want checks the status of both devices, and what they have told.
	want := func(link uint32) {
		t.Helper()
		for i, h := range hosts {
			should.Be(t, linkUp(t, h.d), link != 0, "device %d: link is up", i)
			e, ok := h.next()
			ev := datasheet.Reply[datasheet.Event](&e)
			if !ok || e.Kind != datasheet.EntryEvent || *ev != (datasheet.Event{Code: datasheet.EventLink, CQ: datasheet.NoCQ, Detail: link}) {
				t.Errorf("device %d: %v, event %+v, link is %d", i, ok, ev, link)
			}
		}
	}
	for _, d := range []*emulator.Device{a, b} {
		d.SetLink(true) // no change
		d.SetLink(false)
		want(0)
		d.SetLink(false)
		d.SetLink(true)
		want(1)
	}
	closeDevice(t, a)
	hosts = hosts[1:]
	want(0)
	if e, ok := hosts[0].next(); ok {
		t.Errorf("one entry too many: %+v", e)
	}
}

// TestClosed uses a device after it was closed.
func TestClosed(t *testing.T) {
	for name, run := range map[string]bool{"inline": false, "thread": true} {
		t.Run(name, func(t *testing.T) {
			checkFiles(t)
			d := newDevice(t, func(o *emulator.Options) { o.Thread = run })
			h := newAdminHost(t, d)
			h.thread = run
			h.createVI()
			fd := newEventfd(t).FD()
			must.OK(t, errors.Join(d.SetIRQs(vfio.IRQMSIX, 0, []int{fd}), d.SetIRQs(vfio.IRQErr, 0, []int{fd}), d.SetIRQs(vfio.IRQReq, 0, []int{fd})))
			for range 3 {
				closeDevice(t, d)
			}
			p := make([]byte, 4)
			_, regionErr := d.Region(0)
			_, irqErr := d.IRQ(0)
			_, mapErr := d.MapRegion(vfio.RegionBAR4, 0, 4096)
			_, rangesErr := d.IOVARanges()
			for what, err := range map[string]error{
				"Region": regionErr, "IRQ": irqErr, "MapRegion": mapErr, "IOVARanges": rangesErr,
				"ReadRegion": d.ReadRegion(vfio.RegionBAR0, 0, p), "WriteRegion": d.WriteRegion(vfio.RegionBAR0, 0, p),
				"doorbell": d.WriteRegion(vfio.RegionBAR2, 0x1000, p),
				"SetIRQs":  d.SetIRQs(vfio.IRQMSIX, 0, []int{fd}), "DisableIRQs": d.DisableIRQs(vfio.IRQMSIX),
				"Notify": d.Notify(vfio.IRQMSIX, 0, []func(){nil}),
				"MapDMA": d.MapDMA(h.mem, 0x5000, vfio.DMARead), "UnmapDMA": d.UnmapDMA(hostBase, h.mem.Size()),
				"Reset": d.Reset(context.Background()),
			} {
				wantError(t, what, err, vfio.ErrClosed)
			}
			should.Be(t, d.Poll(), false, "a closed device makes progress")
			d.SetLink(true)
			d.Remove()
			should.Be(t, d.Info().Backend, "emulator", "Info does not work")
		})
	}
}

// TestCloseWhileInUse closes and removes devices under the feet of others.
func TestCloseWhileInUse(t *testing.T) {
	leaktest.Parallel(t)
	for name, o := range map[string]emulator.PairOptions{
		"inline": {}, "thread": emulator.PairOptions{Threads: true}, "thread, mapped": emulator.PairOptions{Threads: true, Doorbells: emulator.DoorbellsMapped},
	} {
		t.Run(name, func(t *testing.T) {
			checkFiles(t)
			a, b := newPair(t, o)
			h := newAdminHost(t, a)
			h.thread = o.Threads
			h.createVI()
			mem, fd := newMemory(t, 4096), newEventfd(t).FD()
			var users sync.WaitGroup
			for _, use := range []func() error{
				func() error { a.Poll(); return a.WriteRegion(vfio.RegionBAR2, 0x1000, []byte{1, 0, 0, 0}) },
				func() error { b.Poll(); return b.ReadRegion(vfio.RegionBAR2, 0x1000, make([]byte, 4)) },
				func() error { return a.ReadRegion(vfio.RegionBAR0, 0, make([]byte, 64)) },
				func() error { return a.WriteRegion(vfio.RegionConfig, 4, []byte{6, 0}) },
				func() error { return errors.Join(a.MapDMA(mem, 0x8000, 3), a.UnmapDMA(0x8000, 4096)) },
				func() error { return a.SetIRQs(vfio.IRQMSIX, 0, []int{fd}) },
				func() error { return a.Reset(context.Background()) },
			} {
				users.Go(func() {
					for end := time.Now().Add(timeout); time.Now().Before(end); {
						if err := use(); errors.Is(err, vfio.ErrClosed) {
							return
						}
					}
					t.Error("Close was not noticed")
				})
			}
			time.Sleep(10 * time.Millisecond)
			b.SetLink(false)
			closeDevice(t, b)
			time.Sleep(5 * time.Millisecond)
			a.Remove()
			closeDevice(t, a)
			users.Wait()
		})
	}
}
