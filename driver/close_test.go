package driver_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestClose closes with everything still there, in each state that a device can
// be in. The fake device checks that no mapping and no interrupt is left.
func TestClose(t *testing.T) {
	for name, script := range map[string]func(*rig){
		"sound":   func(*rig) {},
		"removed": func(r *rig) { r.d.gone = true },
		"does not answer": func(r *rig) {
			r.d.answer = func(*datasheet.Command) (datasheet.Result, bool) { return 0, false }
		},
		"refuses all": func(r *rig) {
			r.d.answer = func(*datasheet.Command) (datasheet.Result, bool) { return datasheet.ResultResource, true }
		},
		"does not reset": func(r *rig) {
			r.d.onWrite = func(offset uint64, v uint32) bool { return offset == datasheet.HealthOffset+datasheet.RegControl }
		},
		"fatal": func(r *rig) {
			r.d.set(datasheet.HealthOffset+datasheet.RegStatus, datasheet.DeviceReady|datasheet.DeviceFatal)
		},
		"garbage": func(r *rig) { r.d.post(datasheet.AdminEntry{Kind: 0xffff}) },
		"goes while closing": func(r *rig) {
			r.d.answer = func(*datasheet.Command) (datasheet.Result, bool) { r.d.gone = true; return 0, false }
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			d := newFake(t)
			n, err := driver.New(contextFor(t), d, driver.Options{Logger: quiet, CommandTimeout: 20 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			r := &rig{d: d, n: n}
			if r.m, err = n.AllocMemory(contextFor(t), 16384, driver.MemoryAttributes{}); err != nil {
				t.Fatal(err)
			}
			if r.sendCQ, err = n.CreateCQ(contextFor(t), 8); err != nil {
				t.Fatal(err)
			}
			if r.v, err = n.CreateVI(contextFor(t), driver.VIAttributes{SendDepth: 4, RecvDepth: 4}, r.sendCQ, nil); err != nil {
				t.Fatal(err)
			}
			if n, err := r.v.PostRecvBatch(r.descriptors(t, 3)); n != 3 || err != nil {
				t.Fatal(n, err)
			}
			d.with(func() { script(r) })
			if err := n.Close(); err != nil {
				t.Error(err)
			}
			if !d.closed {
				t.Error("the device is open")
			}
			if err := n.Close(); err != nil {
				t.Errorf("a second Close: %v", err)
			}
			checkClosed(t, r)
			for what, err := range map[string]error{"memory": r.m.Close(contextFor(t)), "VI": r.v.Close(contextFor(t)), "CQ": r.sendCQ.Close(contextFor(t))} {
				if err != nil {
					t.Errorf("closing the %s of a closed NIC: %v", what, err)
				}
			}
		})
	}
}

// checkClosed calls everything after Close.
func checkClosed(t *testing.T, r *rig) {
	t.Helper()
	ctx := context.Background()
	spare := new(descriptors.Descriptor)
	for name, f := range map[string]func() error{
		"CreatePtag":  func() error { _, err := r.n.CreatePtag(ctx); return err },
		"DestroyPtag": func() error { return r.n.DestroyPtag(ctx, 1) },
		"AllocMemory": func() error { _, err := r.n.AllocMemory(ctx, 1, driver.MemoryAttributes{}); return err },
		"RegisterMemory": func() error {
			_, err := r.n.RegisterMemory(ctx, make([]byte, 1), driver.MemoryAttributes{})
			return err
		},
		"CreateCQ":      func() error { _, err := r.n.CreateCQ(ctx, 4); return err },
		"CreateVI":      func() error { _, err := r.n.CreateVI(ctx, driver.VIAttributes{}, nil, nil); return err },
		"ConnectWait":   func() error { _, err := r.n.ConnectWait(ctx, ""); return err },
		"Health":        func() error { _, err := r.n.Health(ctx); return err },
		"Counters":      func() error { _, err := r.n.Counters(); return err },
		"ChannelLevels": func() error { _, err := r.n.ChannelLevels(); return err },
		"Clock":         func() error { _, err := r.n.Clock(); return err },
		"ReadSRAM":      func() error { return r.n.ReadSRAM(0, make([]byte, 4)) },
		"WriteSRAM":     func() error { return r.n.WriteSRAM(0, make([]byte, 4)) },
		"PostSend":      func() error { return r.v.PostSend(spare) },
		"PostRecv":      func() error { return r.v.PostRecv(spare) },
		"PostSendBatch": func() error {
			_, err := r.v.PostSendBatch([]*descriptors.Descriptor{spare})
			return err
		},
		"SendDone":       func() error { _, err := r.v.SendDone(); return err },
		"RecvDone":       func() error { _, err := r.v.RecvDone(); return err },
		"RecvWait":       func() error { _, err := r.v.RecvWait(ctx); return err },
		"ConnectRequest": func() error { _, err := r.v.ConnectRequest(ctx, driver.Address{}, ""); return err },
		"Disconnect":     func() error { return r.v.Disconnect(ctx) },
		"Query":          func() error { _, err := r.v.Query(ctx); return err },
		"CQ.Done":        func() error { _, err := r.sendCQ.Done(); return err },
		"CQ.Wait":        func() error { _, err := r.sendCQ.Wait(ctx); return err },
	} {
		if err := f(); !errors.Is(err, descriptors.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r.m.Bytes() != nil || r.n.Poll() {
		t.Error("there are bytes, or Poll does something")
	}
	if send, recv := r.v.Queued(); send != 0 || recv != 0 {
		t.Errorf("queued %d, %d", send, recv)
	}
	if r.n.Address() == "" || r.n.Identity().MaxEndpoints == 0 {
		t.Error("the NIC has forgotten who it was")
	}
}

// TestCloseOrder: the device is reset, and loses the bus, before it loses its
// memory.
func TestCloseOrder(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	n, err := driver.New(contextFor(t), d, driver.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.AllocMemory(contextFor(t), 4096, driver.MemoryAttributes{}); err != nil {
		t.Fatal(err)
	}
	mapped := 0
	d.with(func() {
		d.onWrite = func(offset uint64, v uint32) bool {
			if offset == datasheet.HealthOffset+datasheet.RegControl {
				mapped = len(d.dma)
			}
			return false
		}
	})
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if mapped != 2 {
		t.Errorf("%d mappings at the reset, want the rings and the memory", mapped)
	}
	if d.config[4] != 0x2 {
		t.Errorf("command register %#x", d.config[4])
	}
}

// TestCloseWhileBusy closes while everything is being called.
func TestCloseWhileBusy(t *testing.T) {
	for range 20 {
		func() {
			d := newFake(t)
			n, err := driver.New(contextFor(t), d, driver.Options{Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			r := &rig{d: d, n: n}
			if r.m, err = n.AllocMemory(contextFor(t), 16384, driver.MemoryAttributes{}); err != nil {
				t.Fatal(err)
			}
			if r.sendCQ, err = n.CreateCQ(contextFor(t), 8); err != nil {
				t.Fatal(err)
			}
			if r.v, err = n.CreateVI(contextFor(t), driver.VIAttributes{SendDepth: 4, RecvDepth: 4}, r.sendCQ, nil); err != nil {
				t.Fatal(err)
			}
			ds := r.descriptors(t, 3)
			if err := errors.Join(r.v.PostSend(ds[0]), r.v.PostRecv(ds[1])); err != nil {
				t.Fatal(err)
			}
			d.with(func() {
				d.answer = func(c *datasheet.Command) (datasheet.Result, bool) {
					return datasheet.ResultSuccess, c.Opcode != datasheet.OpConnectWait
				}
			})
			ctx := contextFor(t)
			var wg sync.WaitGroup
			start := make(chan struct{})
			for name, f := range map[string]func() error{
				"RecvWait":    func() error { _, err := r.v.RecvWait(ctx); return err },
				"CQ.Wait":     func() error { _, err := r.sendCQ.Wait(ctx); return err },
				"ConnectWait": func() error { _, err := n.ConnectWait(ctx, ""); return err },
				"CreatePtag":  func() error { _, err := n.CreatePtag(ctx); return err },
				"CreateVI": func() error {
					_, err := n.CreateVI(ctx, driver.VIAttributes{SendDepth: 1, RecvDepth: 1}, nil, nil)
					return err
				},
				"memory": func() error {
					m, err := n.AllocMemory(ctx, 4096, driver.MemoryAttributes{})
					if err == nil {
						err = m.Close(ctx)
					}
					return err
				},
				"RecvDone": func() error {
					_, err := r.v.RecvDone()
					if err == descriptors.ErrNotDone {
						err = nil
					}
					return err
				},
				"Health": func() error { _, err := n.Health(ctx); return err },
				"Poll":   func() error { n.Poll(); _, err := n.Clock(); return err },
			} {
				wg.Go(func() {
					<-start
					for {
						// The device has only so many endpoints.
						if err := f(); err != nil && !errors.Is(err, descriptors.ErrResource) {
							if !errors.Is(err, descriptors.ErrClosed) {
								t.Errorf("%s: %v", name, err)
							}
							return
						}
						if errors.Is(ctx.Err(), context.DeadlineExceeded) {
							t.Errorf("%s never ended", name)
							return
						}
					}
				})
			}
			close(start)
			time.Sleep(2 * time.Millisecond)
			for range 2 {
				wg.Go(func() {
					if err := n.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}()
	}
}
