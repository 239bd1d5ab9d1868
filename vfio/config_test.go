package vfio_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// put writes little-endian values of 1, 2, 4 or 8 bytes, by offset.
func put(b []byte, values map[int]any) []byte {
	b = slices.Clone(b)
	for at, v := range values {
		if _, err := binary.Encode(b[at:], binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return b
}

// network is the configuration space of a network controller with three 64-bit
// BARs, power management, PCI Express and MSI-X.
func network() []byte {
	return put(make([]byte, vfio.ConfigExtendedSize), map[int]any{
		0x00: uint32(0x7250_1234), 0x04: uint16(0x0406), 0x06: uint16(0x0010),
		0x08: uint32(0x028000_01), 0x0e: uint8(0x80),
		0x10: uint32(0xfe00_0004), 0x14: uint32(0x10),
		0x18: uint32(0xd000_000c), 0x1c: uint32(0),
		0x20: uint32(0x0000_0004), 0x24: uint32(0),
		0x2c: uint32(0x0001_1af4), 0x34: uint8(0x40), 0x3d: uint8(1),
		0x40: uint16(0x5001),
		0x50: uint16(0x7010), 0x52: uint16(0x0002), 0x54: uint32(0x1000_0002), 0x62: uint16(0x0083),
		0x70: uint16(0x0011), 0x72: uint16(0x803f), 0x74: uint32(0x2000), 0x78: uint32(0x3004),
	})
}

func TestParseConfig(t *testing.T) {
	got := must.Get(vfio.ParseConfig(network()))(t)
	want := &vfio.Config{
		Vendor: 0x1234, Device: 0x7250, SubsystemVendor: 0x1af4, Subsystem: 1,
		Command: vfio.CommandMemory | vfio.CommandBusMaster | vfio.CommandINTxDisable, Status: 0x10,
		Class: 0x028000, Revision: 1, MultiFunction: true, InterruptPin: 1,
		BARs: [6]vfio.BAR{
			{Kind: vfio.BARMemory, Address: 0x10_fe00_0000, Wide: true}, {Kind: vfio.BARUpper},
			{Kind: vfio.BARMemory, Address: 0xd000_0000, Wide: true, Prefetchable: true}, {Kind: vfio.BARUpper},
			{Kind: vfio.BARMemory, Wide: true}, {Kind: vfio.BARUpper},
		},
		Capabilities: []vfio.Capability{
			{ID: vfio.CapabilityPM, Offset: 0x40}, {ID: vfio.CapabilityPCIe, Offset: 0x50}, {ID: vfio.CapabilityMSIX, Offset: 0x70},
		},
		FunctionReset: true,
		MSIX:          &vfio.MSIXCapability{Vectors: 64, TableBAR: 0, TableOffset: 0x2000, PBABAR: 4, PBAOffset: 0x3000, Enabled: true},
	}
	should.Be(t, cmp.Diff(want, got), "")
	c, ok := got.Find(vfio.CapabilityMSIX)
	should.Hold(t, ok && c.Offset == 0x70, "Find: %v, %v", c, ok)
	c, ok = got.Find(vfio.CapabilityMSI)
	should.Hold(t, !ok, "found MSI: %v", c)
}

func TestParseConfigVariants(t *testing.T) {
	tests := []struct {
		name   string
		config []byte
		check  func(*vfio.Config) bool
	}{
		{"conventional size", network()[:vfio.ConfigSize], func(c *vfio.Config) bool {
			return c.MSIX != nil
		}},
		{"longer than there can be", append(network(), 1, 2, 3), func(c *vfio.Config) bool { return c.MSIX != nil }},
		{"no capabilities", put(network(), map[int]any{0x06: uint16(0)}), func(c *vfio.Config) bool {
			return c.Capabilities == nil && !c.FunctionReset && c.MSIX == nil
		}},
		{"reserved bits in pointers", put(network(), map[int]any{0x34: uint8(0x43), 0x41: uint8(0x53)}), func(c *vfio.Config) bool {
			return len(c.Capabilities) == 3 && c.FunctionReset
		}},
		{"32-bit and I/O BARs", put(network(), map[int]any{
			0x18: uint32(0xfebf_0008), 0x1c: uint32(0xc041), 0x20: uint32(0), 0x24: uint32(0xfe00_0002), 0x78: uint32(0x3000)}),
			func(c *vfio.Config) bool {
				return c.BARs[2] == vfio.BAR{Kind: vfio.BARMemory, Address: 0xfebf_0000, Prefetchable: true} &&
					c.BARs[3] == vfio.BAR{Kind: vfio.BARIO, Address: 0xc040} &&
					c.BARs[4] == vfio.BAR{} &&
					c.BARs[5] == vfio.BAR{Kind: vfio.BARMemory, Address: 0xfe00_0000}
			}},
		{"MSI-X masked, largest table", put(network(), map[int]any{0x72: uint16(0x47ff)}), func(c *vfio.Config) bool {
			return c.MSIX.Vectors == 2048 && c.MSIX.Masked && !c.MSIX.Enabled
		}},
		{"two MSI-X capabilities: the first counts", put(network(), map[int]any{0x71: uint8(0x80), 0x80: uint16(0x0011), 0x84: uint32(7)}),
			func(c *vfio.Config) bool { return c.MSIX.Vectors == 64 && len(c.Capabilities) == 4 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.config)
			c := must.Get(vfio.ParseConfig(tt.config))(t)
			should.Hold(t, tt.check(c), "got %+v", c)
			should.Same(t, before, tt.config, "the input has changed")
		})
	}
}

// badConfigs are configuration spaces that contradict the specification.
func badConfigs() map[string][]byte {
	return map[string][]byte{
		"nothing":                        nil,
		"cut off in the header":          network()[:63],
		"cut off behind the header":      network()[:64],
		"cut off in a capability":        network()[:0x7a],
		"bridge":                         put(network(), map[int]any{0x0e: uint8(1)}),
		"64-bit BAR without its half":    put(network(), map[int]any{0x20: uint32(0), 0x24: uint32(4)}),
		"capability in the header":       put(network(), map[int]any{0x34: uint8(0x3c)}),
		"capability loop":                put(network(), map[int]any{0x71: uint8(0x50)}),
		"capability that follows itself": put(network(), map[int]any{0x41: uint8(0x40)}),
		"capability of all ones":         put(network(), map[int]any{0x34: uint8(0x44), 0x44: uint32(0xffff_ffff)}),
		"PCI Express cut off":            put(network(), map[int]any{0x34: uint8(0xfc), 0xfc: uint16(0x0010)}),
		"MSI-X cut off":                  put(network(), map[int]any{0x34: uint8(0xf8), 0xf8: uint16(0x0011)}),
		"MSI-X table in BAR6":            put(network(), map[int]any{0x74: uint32(6)}),
		"MSI-X table in half a BAR":      put(network(), map[int]any{0x74: uint32(1)}),
		"MSI-X PBA in I/O":               put(network(), map[int]any{0x20: uint32(0xc001)}),
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for name, config := range badConfigs() {
		t.Run(name, func(t *testing.T) {
			c, err := vfio.ParseConfig(config)
			should.Hold(t, c == nil && errors.Is(err, vfio.ErrBadConfig), "got %+v, %v", c, err)
		})
	}
	gone := bytes.Repeat([]byte{0xff}, vfio.ConfigSize)
	should.Refuse(vfio.ParseConfig(gone))(t, vfio.ErrDeviceGone, "all ones")
}

func FuzzParseConfig(f *testing.F) {
	f.Add(network())
	f.Add(network()[:vfio.ConfigSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		before := slices.Clone(b)
		c, err := vfio.ParseConfig(b)
		must.Same(t, before, b, "the input has changed")
		if err != nil {
			must.Hold(t, c == nil && (errors.Is(err, vfio.ErrBadConfig) || errors.Is(err, vfio.ErrDeviceGone)), "got %+v, %v", c, err)
			return
		}
		seen := map[int]bool{}
		for _, e := range c.Capabilities {
			must.Hold(t, e.Offset >= 64 && e.Offset < vfio.ConfigSize && !seen[e.Offset] && e.ID == uint16(b[e.Offset]),
				"capability %+v", e)
			seen[e.Offset] = true
		}
		for i, bar := range c.BARs {
			must.Be(t, bar.Kind == vfio.BARUpper, i > 0 && c.BARs[i-1].Wide, "BARs %+v", c.BARs)
		}
		if m := c.MSIX; m != nil && (m.Vectors < 1 || m.Vectors > 2048 || m.TableOffset%8 != 0 || m.PBAOffset%8 != 0 ||
			c.BARs[m.TableBAR].Kind == vfio.BARIO || c.BARs[m.PBABAR].Kind == vfio.BARUpper) {
			t.Fatalf("MSI-X %+v", m)
		}
	})
}

// configDevice is a device of which only the configuration space works.
type configDevice struct {
	vfio.Device
	config    []byte
	regionErr error
	readErr   error
}

func (d *configDevice) Info() vfio.Info { return vfio.Info{Address: "test:config"} }

func (d *configDevice) Region(index int) (vfio.RegionInfo, error) {
	return vfio.RegionInfo{Index: index, Size: uint64(len(d.config)), Flags: vfio.RegionRead}, d.regionErr
}

func (d *configDevice) ReadRegion(index int, offset uint64, p []byte) error {
	if d.readErr != nil {
		return d.readErr
	}
	if index != vfio.RegionConfig || offset+uint64(len(p)) > uint64(len(d.config)) {
		return fmt.Errorf("region %d, %d bytes at %d: %w", index, len(p), offset, vfio.ErrOutOfRange)
	}
	copy(p, d.config[offset:])
	return nil
}

func TestReadConfig(t *testing.T) {
	c, err := vfio.ReadConfig(&configDevice{config: network()})
	should.Hold(t, err == nil && c.Device == 0x7250 && c.MSIX != nil, "got %+v, %v", c, err)
	// No more is read than there can be.
	if _, err := vfio.ReadConfig(&configDevice{config: append(network(), network()...)}); err != nil {
		t.Errorf("large region: %v", err)
	}
	tests := []struct {
		name string
		dev  *configDevice
		want error
		hint bool
	}{
		{"no region", &configDevice{regionErr: vfio.ErrNoSuchRegion}, vfio.ErrNoSuchRegion, false},
		{"closed", &configDevice{config: network(), readErr: vfio.ErrClosed}, vfio.ErrClosed, false},
		{"empty region", &configDevice{}, vfio.ErrBadConfig, true},
		{"nonsense", &configDevice{config: put(network(), map[int]any{0x71: uint8(0x50)})}, vfio.ErrBadConfig, true},
		{"gone", &configDevice{config: bytes.Repeat([]byte{0xff}, 4096)}, vfio.ErrDeviceGone, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := vfio.ReadConfig(tt.dev)
			must.Hold(t, errors.Is(err, tt.want), "got %v, want %v", err, tt.want)
			var e *vfio.Error
			should.Hold(t, !tt.hint || errors.As(err, &e) && e.Hint != "" && e.Device == "test:config",
				"error %+v says neither which device nor what to do", err)
		})
	}
}
