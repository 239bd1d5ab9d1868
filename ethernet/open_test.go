package ethernet_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestConfigCheck(t *testing.T) {
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	for _, tt := range []struct {
		field  string
		change func(c *ethernet.Options)
	}{
		{"Pool", func(c *ethernet.Options) { c.Pool = nil }},
		{"Pool", func(c *ethernet.Options) { c.Queues, c.ReceiveDescriptors = 2, 4096 }},
		{"Queues", func(c *ethernet.Options) { c.Queues = -1 }},
		{"Queues", func(c *ethernet.Options) { c.Queues = 65 }},
		{"ReceiveDescriptors", func(c *ethernet.Options) { c.ReceiveDescriptors = 32 }},
		{"ReceiveDescriptors", func(c *ethernet.Options) { c.ReceiveDescriptors = 8192 }},
		{"SendDescriptors", func(c *ethernet.Options) { c.SendDescriptors = 65 }},
		{"SendDescriptors", func(c *ethernet.Options) { c.SendDescriptors = -512 }},
		{"MTU", func(c *ethernet.Options) { c.MTU = 67 }},
		{"MTU", func(c *ethernet.Options) { c.MTU = 9001 }},
		{"MTU", func(c *ethernet.Options) { c.MTU = 2031 }}, // longer than the buffers
		{"Offloads", func(c *ethernet.Options) { c.Offloads = 1 << 9 }},
		{"MAC", func(c *ethernet.Options) { c.MAC = ethernet.MAC{1, 0, 0, 0, 0, 1} }},
		{"Moderation", func(c *ethernet.Options) { c.Moderation = time.Second }},
		{"Timeout", func(c *ethernet.Options) { c.Timeout = -1 }},
	} {
		c := ethernet.Options{Pool: pool}
		tt.change(&c)
		_, err := c.Check()
		var bad *ethernet.ConfigError
		should.Hold(t, errors.As(err, &bad) && errors.Is(err, ethernet.ErrConfig) && bad.Field == "Options."+tt.field,
			"%+v: %v, want one about %s", c, err, tt.field)
	}
	c, err := ethernet.Options{Pool: pool, MTU: 2030}.Check()
	if err != nil || c.Queues != 1 || c.ReceiveDescriptors != 512 || c.Timeout != 2*time.Second || c.Logger == nil || c.MaxFrame() != 2048 {
		t.Errorf("%+v, %v", c, err)
	}
	should.Give(c.Check())(t, c, "checked twice")
}

// stub is a device that has configuration space only, and counts writes.
type stub struct {
	vfio.Device
	id     uint32 // device and vendor
	class  uint32 // 0 for Ethernet
	writes int
	closed bool
}

func (s *stub) Info() vfio.Info { return vfio.Info{Address: "stub:", Regions: 9} }

func (s *stub) Region(index int) (vfio.RegionInfo, error) {
	return vfio.RegionInfo{Index: index, Size: vfio.ConfigSize}, nil
}

func (s *stub) ReadRegion(_ int, _ uint64, p []byte) error {
	clear(p)
	binary.LittleEndian.PutUint32(p, s.id)
	if s.id != 0xffff_ffff {
		binary.LittleEndian.PutUint32(p[8:], cmp.Or(s.class, 0x020000)<<8)
	}
	return nil
}

func (s *stub) WriteRegion(int, uint64, []byte) error { s.writes++; return nil }
func (s *stub) Close() error                          { s.closed = true; return nil }

var opened ethernet.Model

func init() {
	ethernet.Register(ethernet.Driver{
		Name:   "testdriver",
		Models: []ethernet.Model{{0x1234, 1, "T1", true}, {0x1234, 2, "T2", false}},
		Open: func(_ context.Context, dev vfio.Device, m ethernet.Model, c ethernet.Options) (ethernet.Port, error) {
			opened = m
			return nil, dev.Close()
		},
	})
}

func TestNewPicksTheDriver(t *testing.T) {
	dev := &stub{id: 0x0002_1234}
	must.Get(ethernet.New(t.Context(), dev, ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{})}))(t)
	should.Hold(t, opened.Name == "T2" && !opened.Tested, "opened as %+v", opened)
}

func TestNewRefuses(t *testing.T) {
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	for _, tt := range []struct {
		name   string
		id     uint32
		class  uint32
		config ethernet.Options
		want   error
		hint   string
	}{
		{"another's device", 0x1572_8086, 0, ethernet.Options{Pool: pool}, ethernet.ErrUnsupportedDevice, "testdriver drives T1, T2"},
		{"another's device, and Linux's", 0x1572_8086, 0, ethernet.Options{Pool: pool}, ethernet.ErrUnsupportedDevice, "afxdp:NAME"},
		{"a host bridge", 0x29c0_8086, 0x060000, ethernet.Options{Pool: pool}, ethernet.ErrUnsupportedDevice, "trapeze list"},
		{"all ones", 0xffff_ffff, 0, ethernet.Options{Pool: pool}, ethernet.ErrDeviceGone, ""},
		{"no pool", 0x0001_1234, 0, ethernet.Options{}, ethernet.ErrConfig, ""},
	} {
		dev := &stub{id: tt.id, class: tt.class}
		_, err := ethernet.New(t.Context(), dev, tt.config)
		should.Hold(t, errors.Is(err, tt.want) && strings.Contains(err.Error(), tt.hint) && strings.Contains(err.Error(), "stub:"),
			"%s: %v", tt.name, err)
		should.Hold(t, dev.closed && dev.writes == 0, "%s: closed: %t, %d writes", tt.name, dev.closed, dev.writes)
	}
	should.Refuse(ethernet.Open(t.Context(), "no-such-scheme:", ethernet.Options{Pool: pool}))(t, vfio.ErrUnknownScheme)
}

// TestOpenRefuses: what Linux has, and no driver of ours is for, is not opened. The hint
// names its interface, and never bind.
func TestOpenRefuses(t *testing.T) {
	tree := hostpcitest.New(t)
	tree.Function(hostpcitest.Function{Address: "0000:00:00.0", Vendor: 0x8086, Device: 0x29c0, Class: 0x060000, Group: 1})
	tree.Function(hostpcitest.Function{Address: "0000:03:00.0", Vendor: 0x8086, Device: 0x1572, Class: 0x020000, Driver: "i40e", Netdev: "ens1", Group: 2})
	tree.Function(hostpcitest.Function{Address: "0000:04:00.0", Vendor: 0x1234, Device: 1, Class: 0x020000, Driver: "theirs", Group: 3})
	ethernet.SetHost(t, tree.Root())
	for _, tt := range []struct {
		address string
		want    error
		says    []string
	}{
		{"pci:0000:00:00.0", ethernet.ErrUnsupportedDevice, []string{"no network controller (PCI class 060000)"}},
		{"pci:0000:03:00.0", ethernet.ErrUnsupportedDevice, []string{"leave it to i40e", "afxdp:ens1", "eth:ens1", "testdriver drives"}},
		{"pci:03:00.0", ethernet.ErrUnsupportedDevice, []string{"eth:ens1"}},
		{"pci:0000:04:00.0", vfio.ErrUnknownScheme, nil}, // there is a driver, and no vfio here
		{"pci:0000:09:00.0", vfio.ErrUnknownScheme, nil},
	} {
		_, err := ethernet.Open(t.Context(), tt.address, ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{})})
		should.Hold(t, errors.Is(err, tt.want) && !strings.Contains(err.Error(), "trapeze bind"),
			"%s: %v, want %v", tt.address, err, tt.want)
		for _, s := range tt.says {
			should.Hold(t, err == nil || strings.Contains(err.Error(), s), "%s: %v does not say %q", tt.address, err, s)
		}
	}
}

func TestRegisterTwice(t *testing.T) {
	for _, d := range []ethernet.Driver{
		{Name: "testdriver"},
		{Name: "another", Models: []ethernet.Model{{0x1234, 1, "T1", true}}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s could be registered again", d.Name)
				}
			}()
			ethernet.Register(d)
		}()
	}
	list := ethernet.Drivers()
	should.Hold(t, len(list) == 1 && len(list[0].Models) == 2, "drivers are %+v", list)
}

func TestMAC(t *testing.T) {
	for _, tt := range []struct {
		m              ethernet.MAC
		text           string
		group, station bool
	}{
		{ethernet.MAC{}, "00:00:00:00:00:00", false, false},
		{ethernet.MAC{2, 0, 0, 0, 0, 0xa}, "02:00:00:00:00:0a", false, true},
		{ethernet.MAC{0x33, 0x33}, "33:33:00:00:00:00", true, false},
	} {
		if tt.m.String() != tt.text || tt.m.IsMulticast() != tt.group || tt.m.IsStation() != tt.station {
			t.Errorf("%v: group %t, station %t", tt.m, tt.m.IsMulticast(), tt.m.IsStation())
		}
	}
	should.Be(t, (ethernet.OffloadVLAN | ethernet.OffloadTSO).String(), "VLAN, TSO")
}

func TestFrameIsSmall(t *testing.T) {
	should.Be(t, ethernet.FrameBytes, 24, "a frame has bytes")
}
