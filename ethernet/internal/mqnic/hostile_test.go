package mqnic_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakemqnic"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

const allOnes = 1<<32 - 1

// unit is how large the parts of the only interface are.
const unit = 1 << 19

// TestOpenRefuses opens devices whose blocks cannot be. Each ends with a typed error that names what
// is wrong, and everything given back.
func TestOpenRefuses(t *testing.T) {
	type fake = fakemqnic.Device
	set := func(at uint64, v uint32) func(*fake) { return func(d *fake) { d.Set(at, v) } }
	in := func(at uint64, v uint32) func(*fake) { return func(d *fake) { d.Set(d.Control(0)+at, v) } }
	const next, field = 8, 12
	for _, tt := range []struct {
		name   string
		break_ func(d *fake)
		want   error
		says   string
	}{
		{"removed", func(d *fake) { d.Remove() }, ethernet.ErrDeviceGone, ""},
		{"registers read as all ones", func(d *fake) { d.OnRead = func(uint64, uint32) uint32 { return allOnes } }, ethernet.ErrNeedsReset, "/sys/bus/pci"},
		{"all ones in the middle", func(d *fake) {
			n := 0
			d.OnRead = func(_ uint64, v uint32) uint32 {
				if n++; n > 30 {
					return allOnes
				}
				return v
			}
		}, ethernet.ErrNeedsReset, ""},
		{"a BAR that is too small", func(d *fake) { d.RegisterBytes = 0x8000 }, ethernet.ErrProtocol, "BAR0"},

		{"a global chain that loops", set(fakemqnic.PHC+next, fakemqnic.IRQConfig), ethernet.ErrProtocol, "comes back to 0x40"},
		{"a block that is next to itself", set(fakemqnic.PHC+next, fakemqnic.PHC), ethernet.ErrProtocol, "comes back to 0x100"},
		{"a chain that leaves the BAR", set(fakemqnic.PHC+next, 1<<24), ethernet.ErrProtocol, "0x1000000"},
		{"a chain that leaves the BAR by a word", set(fakemqnic.PHC+next, 1<<24-8), ethernet.ErrProtocol, "0xfffff8"},
		{"a chain between registers", set(fakemqnic.PHC+next, 0x201), ethernet.ErrProtocol, "0x201"},
		{"a chain that reads as all ones", set(fakemqnic.PHC+next, allOnes), ethernet.ErrProtocol, "0xffffffff"},
		{"a chain without an end", func(d *fake) {
			for at := uint64(0x40000); at < 0x50000; at += 16 {
				d.Set(at+next, uint32(at+16))
			}
			d.Set(fakemqnic.PHC+next, 0x40000)
		}, ethernet.ErrProtocol, "more than 256"},
		{"no firmware id", set(fakemqnic.FirmwareID, 0x1234), ethernet.ErrUnsupportedDevice, "FW_ID"},
		{"interfaces of another version", set(fakemqnic.Interfaces+4, 0x200), ethernet.ErrUnsupportedDevice, "IF (type 0000c000) has version 0.0.2.0, and this driver knows 0.0.1.0"},
		{"two blocks of interfaces", set(fakemqnic.IRQConfig, 0xc000), ethernet.ErrProtocol, "block IF is at 0x40 and at 0x50"},
		{"no interfaces", set(fakemqnic.Interfaces+0x10, 0), ethernet.ErrProtocol, "no interfaces"},
		{"2^31 interfaces", set(fakemqnic.Interfaces+0x10, 1<<31), ethernet.ErrProtocol, "do not fit"},
		{"interfaces without room", set(fakemqnic.Interfaces+0x14, 0), ethernet.ErrProtocol, "do not fit"},
		{"an interface outside the BAR", set(fakemqnic.Interfaces+0x0c, 1<<25), ethernet.ErrProtocol, "do not fit"},
		{"control blocks outside", set(fakemqnic.Interfaces+0x18, 1<<24), ethernet.ErrProtocol, "control blocks"},
		{"a block that ends outside", func(d *fake) {
			d.Set(fakemqnic.PHC+next, 1<<24-12)
			d.Set(1<<24-12, 0xc005)
			d.Set(1<<24-8, 0x200)
		}, ethernet.ErrProtocol, "APP_INFO"},

		{"an interface chain that loops", in(fakemqnic.QueueMap+next, unit), ethernet.ErrProtocol, "comes back"},
		{"an interface chain that leaves it", in(fakemqnic.QueueMap+next, 1<<31), ethernet.ErrProtocol, "is not in"},
		{"no IF_CTRL", in(fakemqnic.IFControl, 1), ethernet.ErrUnsupportedDevice, "IF_CTRL"},
		{"event queues of another version", in(fakemqnic.EQManager+4, 0x300), ethernet.ErrUnsupportedDevice, "EQ_MANAGER"},
		{"no completion queues", in(fakemqnic.CQManager, 0), ethernet.ErrUnsupportedDevice, "CQ_MANAGER"},
		{"0 completion queues", in(fakemqnic.CQManager+0x10, 0), ethernet.ErrProtocol, "CQ_MANAGER has no queues"},
		{"2^31 transmit queues", in(fakemqnic.TXManager+0x10, 1<<31), ethernet.ErrProtocol, "2147483648 queues of TX_QUEUE_MANAGER"},
		{"receive queues outside", in(fakemqnic.RXManager+field, 1<<30), ethernet.ErrProtocol, "RX_QUEUE_MANAGER"},
		{"receive queues one byte off", in(fakemqnic.RXManager+field, 12*unit+1), ethernet.ErrProtocol, "RX_QUEUE_MANAGER"},
		{"a stride of 0", in(fakemqnic.RXManager+0x14, 0), ethernet.ErrProtocol, "0x0 bytes apart"},
		{"a stride that overlaps", in(fakemqnic.RXManager+0x14, 16), ethernet.ErrProtocol, "0x10 bytes apart"},
		{"a stride of 2^31", in(fakemqnic.TXManager+0x14, 1<<31), ethernet.ErrProtocol, "do not end"},
		{"queues in the place of others", in(fakemqnic.RXManager+field, 8*unit), ethernet.ErrProtocol, "overlap"},
		{"a map of no ports", in(fakemqnic.QueueMap+field, 6<<8), ethernet.ErrProtocol, "for 0 ports"},
		{"a map of 2^9 entries", in(fakemqnic.QueueMap+field, 9<<8|1), ethernet.ErrProtocol, "2^9"},
		{"a map of 2^255 entries", in(fakemqnic.QueueMap+field, 0xff01), ethernet.ErrProtocol, "2^255"},
		{"a map outside", in(fakemqnic.QueueMap+0x10, 1<<24), ethernet.ErrProtocol, "indirection table"},
		{"no ports", in(fakemqnic.Port, 0), ethernet.ErrUnsupportedDevice, "PORT"},
		{"a port without control", in(fakemqnic.Port+field, unit+fakemqnic.SchedulerBlock), ethernet.ErrUnsupportedDevice, "PORT_CTRL"},
		{"no schedulers", in(fakemqnic.SchedulerBlock, 0), ethernet.ErrUnsupportedDevice, "SCHED_BLOCK"},
		{"a scheduler of another kind", in(fakemqnic.Scheduler, 0xc050), ethernet.ErrUnsupportedDevice, "SCHED_RR"},
		{"a scheduler without channels", in(fakemqnic.Scheduler+0x10, 0), ethernet.ErrProtocol, "SCHED_RR"},
		{"channels that overlap", in(fakemqnic.Scheduler+0x14, 2), ethernet.ErrProtocol, "SCHED_RR"},

		{"memory that cannot be mapped", func(d *fake) { d.MapFails = vfio.ErrIOVARange }, vfio.ErrIOVARange, ""},
		{"configuration space that cannot be written", func(d *fake) { d.ConfigFails = vfio.ErrNotSupported }, vfio.ErrNotSupported, ""},
		{"a queue that stays active", func(d *fake) { stuck(d, d.RX(0, 0), 1<<3) }, ethernet.ErrNotReady, "switching queue 0 off"},
		{"a completion queue that stays active", func(d *fake) { stuck(d, d.CQ(0, 0), 1<<19) }, ethernet.ErrNotReady, "completion queue 0"},
		{"an event queue that stays active", func(d *fake) { stuck(d, d.EQ(0, 0), 1<<19) }, ethernet.ErrNotReady, "event queue 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newFake(t, fakemqnic.Options{})
			tt.break_(d)
			pool := porttest.NewPool(t, ethernet.PoolOptions{})
			_, err := ethernet.New(contextFor(t), d, config(t, ethernet.Options{Pool: pool, Timeout: soon}))
			var e *ethernet.Error
			must.Hold(t, errors.Is(err, tt.want) && errors.As(err, &e) && strings.Contains(err.Error(), tt.says),
				"got %v, want %v that says %q", err, tt.want, tt.says)
			should.Be(t, pool.Free(), 4096, "buffers are back")
		})
	}
}

// stuck makes a queue be active for ever.
func stuck(d *fakemqnic.Device, queue uint64, active uint32) {
	d.OnRead = func(offset uint64, v uint32) uint32 {
		if offset == queue+8 {
			v |= active
		}
		return v
	}
}

func TestOpenRefusesOptions(t *testing.T) {
	for _, tt := range []struct {
		device fakemqnic.Options
		config ethernet.Options
		want   error
		says   string
	}{
		{fakemqnic.Options{Queues: 4}, ethernet.Options{Queues: 5, ReceiveDescriptors: 64}, ethernet.ErrConfig, "at most 4"},
		{fakemqnic.Options{MaxFrame: 1518}, ethernet.Options{MTU: 1501}, ethernet.ErrConfig, "at most 1500"},
		{fakemqnic.Options{MaxFrame: 8}, ethernet.Options{}, ethernet.ErrConfig, "frames of 8 bytes"},
		{fakemqnic.Options{Features: 1}, ethernet.Options{Offloads: ethernet.OffloadHash | ethernet.OffloadSendSum}, ethernet.ErrNotSupported, "hash, send checksum"},
		{fakemqnic.Options{}, ethernet.Options{HashKey: [40]byte{1}}, ethernet.ErrNotSupported, "HashKey"},
		{fakemqnic.Options{}, ethernet.Options{Offloads: ethernet.OffloadTSO}, ethernet.ErrNotSupported, "TSO"},
		{fakemqnic.Options{}, ethernet.Options{Offloads: ethernet.OffloadVLAN}, ethernet.ErrNotSupported, "VLAN"},
	} {
		d := newFake(t, tt.device)
		_, err := ethernet.New(contextFor(t), d, config(t, tt.config))
		should.Hold(t, errors.Is(err, tt.want) && strings.Contains(err.Error(), tt.says),
			"%+v: %v, want %v with %q", tt.config, err, tt.want, tt.says)
	}
}

// TestUnknownBlocks: blocks of other kinds and versions are skipped; those that a port does not need
// may be missing.
func TestUnknownBlocks(t *testing.T) {
	d := newFake(t, fakemqnic.Options{})
	for _, at := range []uint64{fakemqnic.IRQConfig, fakemqnic.PHC, 0x80} {
		d.Set(at, 0xabcd)
	}
	p := open(t, d, ethernet.Options{})
	porttest.SendOne(t, p.Queue(0), porttest.FrameTo(porttest.Own, 60))
}

// FuzzChain makes the blocks say anything. A port opens, or not, with a typed error.
func FuzzChain(f *testing.F) {
	f.Add([]byte{0x08, 0x01, 0, 0x40, 0, 0, 0})                // a global loop
	f.Add([]byte{0x08, 0, 8, 0, 0, 0, 0x80})                   // an interface chain that leaves it
	f.Add([]byte{0x70, 0, 8, 0, 0, 0, 0x80})                   // 2^31 completion queues
	f.Add([]byte{0x10, 0x20, 8, 1, 0, 0, 0, 0x60, 0, 0, 1, 0}) // a scheduler
	f.Fuzz(func(t *testing.T, b []byte) {
		d := must.Get(fakemqnic.New(fakemqnic.Options{Queues: 4}))(t)
		for ; len(b) >= 7; b = b[7:] {
			at := uint64(binary.LittleEndian.Uint16(b)) &^ 3 & 0x3fff
			if b[2]&8 != 0 {
				at += d.Control(0)
			}
			d.Set(at, binary.LittleEndian.Uint32(b[3:]))
		}
		pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 100})
		p, err := ethernet.New(contextFor(t), d, config(t, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, Timeout: soon}))
		if err == nil {
			_, _ = p.Link()
			err = p.Close()
		}
		var e *ethernet.Error
		should.Hold(t, err == nil || errors.As(err, &e), "%v", err)
		if n := pool.Free(); n != 100 || !d.Closed() {
			t.Errorf("%d of 100 buffers are back, closed: %v", n, d.Closed())
		}
	})
}
