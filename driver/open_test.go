package driver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestOpenIdentifies(t *testing.T) {
	checkLeaks(t)
	n := openFake(t, newFake(t))
	id := n.Identity()
	want := driver.Identity{
		PCI:           driver.PCIID{Vendor: datasheet.PCIVendorID, Device: datasheet.PCIDeviceID},
		DeviceVersion: 0x010203, MaxEndpoints: fakeEndpoints, MaxCQs: fakeCQs, MaxRegions: 64, MaxPtags: 8,
		MaxQueueDepth: 64, MaxCQEntries: 256, MaxSegments: 252, MaxTransfer: 1 << 20, MTU: 4096, SRAM: fakeSRAM,
		MAC: datasheet.MAC{0, 1, 2, 3, 4, 5}, Vectors: 4,
	}
	var names []string
	for _, b := range id.Blocks {
		names = append(names, b.Name())
	}
	id.Blocks = nil
	if diff := cmp.Diff(want, id); diff != "" {
		t.Error(diff)
	}
	if got := strings.Join(names, " "); got != "identity health type 0xdecaf admin clock counters interrupt" {
		t.Errorf("blocks: %s", got)
	}
	if n.Address() != "fake:" || n.Backend() != "fake" {
		t.Errorf("address %q, back end %q", n.Address(), n.Backend())
	}
	h, err := n.Health(t.Context())
	if want := (driver.Health{Ready: true, LinkUp: true, Resets: 1}); err != nil || h != want {
		t.Errorf("health %+v, %v", h, err)
	}
}

// TestOpenRefuses opens devices that are not what they should be.
func TestOpenRefuses(t *testing.T) {
	identity := func(reg uint64, v uint32) func(*fakeDevice) {
		return func(d *fakeDevice) { d.set(datasheet.IdentityOffset+reg, v) }
	}
	header := func(block, reg uint64, v uint32) func(*fakeDevice) {
		return func(d *fakeDevice) { d.set(block+reg, v) }
	}
	for _, c := range []struct {
		name   string
		script func(*fakeDevice)
		want   error
		says   string
	}{
		{"other vendor", func(d *fakeDevice) { binary.LittleEndian.PutUint16(d.config[0:], 0x8086) }, driver.ErrUnsupportedDevice, "8086:7250"},
		{"other device", func(d *fakeDevice) { binary.LittleEndian.PutUint16(d.config[2:], 0x10fb) }, driver.ErrUnsupportedDevice, "1234:10fb"},
		{"another's NIC", func(d *fakeDevice) {
			binary.LittleEndian.PutUint16(d.config[0:], 0x8086)
			d.config[10], d.config[11], d.address = 0, 2, "pci:0000:03:00.0?backend=group"
		}, driver.ErrUnsupportedDevice, "eth:pci:0000:03:00.0"},
		{"gone", func(d *fakeDevice) { d.gone = true }, driver.ErrDeviceGone, ""},
		{"registers gone", func(d *fakeDevice) {
			for i := range d.bar0 {
				d.bar0[i] = 0xff
			}
		}, driver.ErrDeviceGone, "removed"},
		{"registers zero", func(d *fakeDevice) { clear(d.bar0[:]) }, driver.ErrBadRegisters, "size of 0x0"},
		{"chain loops", header(datasheet.ClockOffset, datasheet.BlockRegNext, datasheet.HealthOffset), driver.ErrBadRegisters, "loops"},
		{"chain points at itself", header(datasheet.HealthOffset, datasheet.BlockRegNext, datasheet.HealthOffset), driver.ErrBadRegisters, "loops"},
		{"chain leaves BAR0", header(datasheet.HealthOffset, datasheet.BlockRegNext, datasheet.BAR0Size-8), driver.ErrBadRegisters, "outside BAR0"},
		{"chain leaves by far", header(datasheet.HealthOffset, datasheet.BlockRegNext, 0xfffffff0), driver.ErrBadRegisters, "outside BAR0"},
		{"chain misaligned", header(datasheet.HealthOffset, datasheet.BlockRegNext, datasheet.AdminOffset+2), driver.ErrBadRegisters, "multiple of 4"},
		{"block too large", header(datasheet.AdminOffset, datasheet.BlockRegSize, datasheet.BAR0Size), driver.ErrBadRegisters, "does not fit"},
		{"block too small", header(datasheet.AdminOffset, datasheet.BlockRegSize, 0x20), driver.ErrBadRegisters, "are needed"},
		{"block smaller than its header", header(datasheet.AdminOffset, datasheet.BlockRegSize, 8), driver.ErrBadRegisters, "does not fit"},
		{"no identity first", header(0, datasheet.BlockRegType, datasheet.BlockClock), driver.ErrBadRegisters, "identity"},
		{"no admin block", header(datasheet.AdminOffset, datasheet.BlockRegType, 0x999), driver.ErrBadRegisters, "no admin block"},
		{"two clocks", header(datasheet.InterruptOffset, datasheet.BlockRegType, datasheet.BlockClock), driver.ErrBadRegisters, "second clock"},
		{"identity from the future", header(0, datasheet.BlockRegVersion, 2<<16|3), driver.ErrVersion, "identity block at 0x0 of BAR0 has version 2.3, this driver knows 1.x"},
		{"health from the past", header(datasheet.HealthOffset, datasheet.BlockRegVersion, 9), driver.ErrVersion, "version 0.9"},
		{"no magic", identity(datasheet.RegMagic, 0x12345678), driver.ErrBadRegisters, "0x12345678"},
		{"page size", identity(datasheet.RegPageSizeLog2, 16), driver.ErrBadRegisters, "page size"},
		{"page size shift", identity(datasheet.RegPageSizeLog2, 0xffffffff), driver.ErrBadRegisters, "page size"},
		{"no endpoints", identity(datasheet.RegMaxEndpoints, 0), driver.ErrBadRegisters, "endpoints"},
		{"too many endpoints", identity(datasheet.RegMaxEndpoints, 0xffffffff), driver.ErrBadRegisters, "endpoints"},
		{"too many CQs", identity(datasheet.RegMaxCQs, 1<<20), driver.ErrBadRegisters, "completion queues"},
		{"doorbells do not fit", identity(datasheet.RegMaxEndpoints, 1000), driver.ErrBadRegisters, "BAR2"},
		{"queues too long", identity(datasheet.RegMaxQueueLog2, 31), driver.ErrBadRegisters, "queue size"},
		{"CQs too long", identity(datasheet.RegMaxCQLog2, 40), driver.ErrBadRegisters, "completion queue size"},
		{"MTU", identity(datasheet.RegMTU, 20), driver.ErrBadRegisters, "MTU"},
		{"never ready", func(d *fakeDevice) {
			d.set(datasheet.HealthOffset+datasheet.RegStatus, datasheet.DeviceResetting)
		}, driver.ErrNotReady, "status 0x2"},
		{"never reset", func(d *fakeDevice) {
			d.onWrite = func(offset uint64, v uint32) bool { return offset == datasheet.HealthOffset+datasheet.RegControl }
		}, driver.ErrNotReady, ""},
		{"fatal after reset", func(d *fakeDevice) {
			d.set(datasheet.HealthOffset+datasheet.RegStatus, datasheet.DeviceReady|datasheet.DeviceFatal)
		}, driver.ErrNotReady, "status 0x5"},
		{"gone by the reset", func(d *fakeDevice) {
			d.onWrite = func(offset uint64, v uint32) bool {
				d.gone = offset == datasheet.HealthOffset+datasheet.RegControl
				return d.gone
			}
		}, driver.ErrDeviceGone, ""},
		{"admin queue never enabled", func(d *fakeDevice) {
			d.onWrite = func(offset uint64, v uint32) bool {
				return offset == datasheet.AdminOffset+datasheet.RegAdminControl
			}
		}, driver.ErrNotReady, "admin queue"},
		{"admin queue refused", func(d *fakeDevice) {
			d.onWrite = func(offset uint64, v uint32) bool {
				if offset != datasheet.AdminOffset+datasheet.RegAdminControl {
					return false
				}
				d.set(datasheet.AdminOffset+datasheet.RegAdminStatus, datasheet.AdminError)
				d.set(datasheet.HealthOffset+datasheet.RegFault, datasheet.FaultAdminDMA)
				return true
			}
		}, driver.ErrDeviceFault, "admin ring"},
		{"no DMA", func(d *fakeDevice) { d.mapFail = vfio.ErrIOVARange }, vfio.ErrIOVARange, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkLeaks(t)
			d := newFake(t)
			c.script(d)
			n, err := driver.New(contextFor(t), d, driver.Options{Logger: quiet, CommandTimeout: 5 * time.Millisecond})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %v with %q", err, c.want, c.says)
			}
			var e *driver.Error
			if !errors.As(err, &e) || e.Device != d.Info().Address || e.Op != "open" {
				t.Errorf("error %#v does not say what was attempted on which device", err)
			}
			if n != nil {
				t.Error("there is a NIC all the same")
			}
			if !d.closed {
				t.Error("the device was not closed")
			}
		})
	}
}

func TestVersionErrorNamesBlock(t *testing.T) {
	d := newFake(t)
	d.set(datasheet.AdminOffset+datasheet.BlockRegVersion, 3<<16)
	_, err := driver.New(contextFor(t), d, driver.Options{Logger: quiet})
	var v *driver.VersionError
	if !errors.As(err, &v) {
		t.Fatal(err)
	}
	want := driver.VersionError{Block: datasheet.BlockAdmin, Offset: datasheet.AdminOffset, Found: 3 << 16, Wanted: datasheet.BlockVersion1}
	if diff := cmp.Diff(want, *v); diff != "" {
		t.Error(diff)
	}
}

func TestOpenOtherIDs(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	binary.LittleEndian.PutUint16(d.config[0:], 0x1d0f)
	n, err := driver.New(contextFor(t), d, driver.Options{Logger: quiet, IDs: []driver.PCIID{{Vendor: 0x1d0f, Device: datasheet.PCIDeviceID}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// TestOpenMinorVersion: a newer minor version with larger blocks is welcome.
func TestOpenMinorVersion(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	d.set(datasheet.HealthOffset+datasheet.BlockRegVersion, datasheet.BlockVersion1|9)
	d.set(datasheet.HealthOffset+datasheet.BlockRegSize, datasheet.HealthSize+0x40)
	openFake(t, d)
}

// TestOpenWithoutOptionalBlocks: clock and counters say that they are not there.
func TestOpenWithoutOptionalBlocks(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	d.set(datasheet.ClockOffset+datasheet.BlockRegType, 0x998)
	d.set(datasheet.CounterOffset+datasheet.BlockRegType, 0x999)
	n := openFake(t, d)
	if _, err := n.Clock(); !errors.Is(err, descriptors.ErrNotSupported) {
		t.Error(err)
	}
	if _, err := n.Counters(); !errors.Is(err, descriptors.ErrNotSupported) {
		t.Error(err)
	}
}

func TestOpenCanceled(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	d.set(datasheet.HealthOffset+datasheet.RegStatus, datasheet.DeviceResetting)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(5*time.Millisecond, cancel)
	if _, err := driver.New(ctx, d, driver.Options{Logger: quiet, CommandTimeout: 50 * time.Millisecond}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestOpenBadAddress(t *testing.T) {
	for address, want := range map[string]error{
		"": vfio.ErrBadAddress, "nothing": vfio.ErrBadAddress, "nosuch:x": vfio.ErrUnknownScheme,
	} {
		if _, err := driver.Open(contextFor(t), address, driver.Options{Logger: quiet}); !errors.Is(err, want) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 1, 0}, uint64(0))
	f.Add([]byte{0x00, 0x02, 0, 0}, uint64(datasheet.ClockOffset+datasheet.BlockRegNext))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint64(datasheet.IdentityOffset+datasheet.RegMaxEndpoints))
	f.Fuzz(func(t *testing.T, registers []byte, at uint64) {
		d := newFake(t)
		copy(d.bar0[at%datasheet.BAR0Size:], registers)
		n, err := driver.New(t.Context(), d, driver.Options{Logger: quiet, CommandTimeout: time.Millisecond})
		if err != nil {
			return
		}
		// What was opened has limits that everything else can rely on.
		id := n.Identity()
		if id.MaxEndpoints > fakeEndpoints+fakeCQs || id.MaxCQs > fakeEndpoints+fakeCQs || id.MaxQueueDepth > 1<<datasheet.MaxQueueLog2 ||
			id.MaxTransfer > datasheet.MaxTransfer || id.MTU > datasheet.MaxMTU {
			t.Errorf("opened with %+v", id)
		}
		// Reading may fail: the registers are somebody's imagination.
		_, _ = n.Counters()
		_, _ = n.Clock()
		_, _ = n.Health(t.Context())
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}
