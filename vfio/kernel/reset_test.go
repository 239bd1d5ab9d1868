package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// TestReset: interrupts and bus mastering are off, memory decode is on, and
// mappings are where they were.
func TestReset(t *testing.T) {
	resets := map[string]func(*Device, context.Context) error{"function": (*Device).Reset, "hot": (*Device).HotReset}
	for name, reset := range resets {
		t.Run(name, func(t *testing.T) {
			forEachBackend(t, func(t *testing.T, k *fake, d *Device) {
				f := k.functions[nic]
				f.affected = []hotResetDependent{{id: uint32(d.fn.IOMMUGroup), bus: 3}}
				if d.Info().Backend != backendNoIOMMU {
					if err := d.MapDMA(alloc(t, 4096), 0x1000, both); err != nil {
						t.Fatal(err)
					}
				}
				mapped := k.mapped()
				fd := eventfd(t)
				if err := d.SetIRQs(vfio.IRQMSIX, 0, []int{fd.FD()}); err != nil {
					t.Fatal(err)
				}
				command := []byte{byte(vfio.CommandBusMaster | vfio.CommandMemory), 0}
				if err := d.WriteRegion(vfio.RegionConfig, vfio.ConfigCommand, command); err != nil {
					t.Fatal(err)
				}
				f.locked = 3 // the kernel is at it itself, for a while
				if err := reset(d, withTimeout(t)); err != nil {
					t.Fatal(err)
				}
				if f.resets != 1 || f.busMaster[0] {
					t.Errorf("%d resets, bus mastering during them %v", f.resets, f.busMaster)
				}
				if f.command() != vfio.CommandMemory {
					t.Errorf("command register %#x", f.command())
				}
				if got := f.connected(k, vfio.IRQMSIX); len(got) > 0 {
					t.Errorf("vectors %v are connected", got)
				}
				if len(f.connected(k, vfio.IRQReq)) != 1 {
					t.Error("the request interrupt is not armed any more")
				}
				if len(k.mapped()) != len(mapped) {
					t.Errorf("mapped %#x, before %#x", k.mapped(), mapped)
				}
			})
		})
	}
}

func TestResetFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(k *fake, d *Device)
		want   error
		says   string
	}{
		{"no way", func(_ *fake, d *Device) { d.info.Resettable = false }, vfio.ErrNotSupported, "HotReset"},
		{"no way after all", func(k *fake, _ *Device) { k.fail["DEVICE_RESET"] = unix.ENOTTY }, unix.ENOTTY, "HotReset"},
		{"asleep", func(k *fake, _ *Device) { k.fail["DEVICE_RESET"] = unix.EIO }, unix.EIO, "power state"},
		{"interrupts stay", func(k *fake, d *Device) {
			if err := d.SetIRQs(vfio.IRQMSI, 0, []int{eventfdOf(d)}); err != nil {
				panic(err)
			}
			k.fail["SET_IRQS"] = unix.EIO
		}, unix.EIO, "interrupts"},
		{"gone", func(k *fake, _ *Device) { k.functions[nic].gone = true }, vfio.ErrDeviceGone, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, d := ready(t, backendGroup)
			tt.change(k, d)
			err := d.Reset(withTimeout(t))
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			says(t, err, tt.says, nic)
			clear(k.fail)
			k.functions[nic].gone = false
		})
	}
}

// eventfdOf borrows an eventfd of the device.
func eventfdOf(d *Device) int { return d.alerts.fds[0].FD() }

// TestResetLocked: the kernel keeps the device locked until the context ends.
func TestResetLocked(t *testing.T) {
	k, d := ready(t, backendGroup)
	k.fail["DEVICE_RESET"] = unix.EAGAIN
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := d.Reset(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	cancel()
	if err := d.Reset(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
	if err := d.HotReset(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("hot, with a context that is over: %v", err)
	}
}

// TestHotResetTogether: what is reset with it must be ours too, and is told.
func TestHotResetTogether(t *testing.T) {
	const other = "0000:03:00.1"
	for _, b := range backends[:2] {
		t.Run(b, func(t *testing.T) {
			checkFiles(t)
			tr := machine(t)
			tr.function(other, "vfio-pci", 8, nicClass)
			tr.groupNode("8")
			tr.cdev(other, "vfio1")
			k, h := openFake(t, tr)
			k.viable[8] = true
			k.functions[other] = newFakeFunction()
			f := k.functions[nic]
			d := mustOpen(t, h, "pci:"+nic+"?backend="+b)
			f.affected = []hotResetDependent{{id: 7, bus: 3}, {id: 8, bus: 3, devfn: 1}}
			if b == backendCdev {
				f.affected[1].id = hotResetDevUnowned
			}
			err := d.HotReset(withTimeout(t))
			if !errors.Is(err, unix.EPERM) {
				t.Fatalf("a function is not ours: %v", err)
			}
			says(t, err, other+" (vfio-pci)", "hot-reset")
			if f.resets > 0 {
				t.Error("reset all the same")
			}

			second := mustOpen(t, h, "pci:"+other+"?backend="+b)
			if b == backendCdev {
				f.affected[1].id = 2 // as the kernel says of devices of one iommufd
				if n := k.count("iommufd"); n != 1 {
					t.Errorf("%d descriptors of /dev/iommu", n)
				}
			}
			list, err := d.HotResetFunctions()
			if err != nil {
				t.Fatal(err)
			}
			want := []Affected{{nic, 7, true, "vfio-pci"}, {other, 8, true, "vfio-pci"}}
			if b == backendCdev {
				want[0].Group, want[1].Group = -1, -1
			}
			if !slices.Equal(list, want) {
				t.Errorf("affected %+v, want %+v", list, want)
			}
			fd := eventfd(t)
			if err := second.SetIRQs(vfio.IRQMSI, 0, []int{fd.FD()}); err != nil {
				t.Fatal(err)
			}
			if err := d.HotReset(withTimeout(t)); err != nil {
				t.Fatal(err)
			}
			if proof := f.proofs[0]; b == backendGroup && !slices.Equal(proof, []int{7, 8}) || b == backendCdev && len(proof) > 0 {
				t.Errorf("shown groups %v", proof)
			}
			if err := next(t, second); !errors.Is(err, ErrDeviceFault) {
				t.Errorf("alert %v", err)
			}
			if len(k.functions[other].connected(k, vfio.IRQMSI)) > 0 {
				t.Error("the other one's interrupts are connected")
			}
		})
	}
}

func TestHotResetFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(k *fake)
		want   error
	}{
		{"root bus", func(k *fake) { k.functions[nic].noHotReset = true }, vfio.ErrNotSupported},
		{"info", func(k *fake) { k.fail["HOT_RESET_INFO"] = unix.EIO }, unix.EIO},
		{"reset", func(k *fake) { k.fail["HOT_RESET"] = unix.EINVAL }, unix.EINVAL},
		{"more and more functions", func(k *fake) { k.fail["HOT_RESET_INFO"] = unix.ENOSPC }, unix.ENOSPC},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, d := ready(t, backendGroup)
			tt.change(k)
			if err := d.HotReset(withTimeout(t)); !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			// It does not keep others from trying.
			clear(k.fail)
			k.functions[nic].noHotReset = false
			if err := d.HotReset(withTimeout(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestManyFunctions: more than fit at first.
func TestManyFunctions(t *testing.T) {
	k, d := ready(t, backendGroup)
	f := k.functions[nic]
	f.affected = nil
	for i := range 100 {
		f.affected = append(f.affected, hotResetDependent{id: 7, segment: 1, bus: 3, devfn: uint8(i)})
	}
	list, err := d.HotResetFunctions()
	if err != nil || len(list) != 100 {
		t.Fatalf("%d functions, %v", len(list), err)
	}
	for i, a := range list {
		if want := fmt.Sprintf("0001:03:%02x.%x", i/8, i%8); a.Address != want || !a.Owned {
			t.Errorf("%+v, want %s", a, want)
		}
	}
}
