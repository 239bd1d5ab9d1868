// Package fakemqnic is a Corundum for tests: a vfio.Device that does what the driver relies on, and
// through its hooks what no device should.
//
// It was written from the register map, formats and order of work of corundum/corundum at commit
// 1ca0151b, and not from the driver. It completes at once what it is asked for.
package fakemqnic

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/trapeze-nic/trapeze/ci/kit/fakepci"
	"github.com/trapeze-nic/trapeze/vfio"
)

// barBytes is the size of BAR0, as in most designs.
const barBytes = 1 << 24

// Options of New. The zero value is an Alveo U200 with one interface.
type Options struct {
	// Interfaces is the number of interfaces, 0 for 1.
	Interfaces int
	// Queues is the number of transmit and receive queues of an interface, 0 for 64; there are as many
	// event queues and twice as many completion queues.
	Queues int
	// Vectors is the number of MSI-X vectors, 0 for 64.
	Vectors int
	// Features of IF_CTRL, 0 for all but LFC and PFC.
	Features uint32
	// App is the id of the application, 0 for none.
	App uint32
	// MaxFrame is the longest frame in bytes, 0 for 9214.
	MaxFrame uint32
}

// Device is a fake Corundum. Fields are set before the driver has it, or inside With.
type Device struct {
	*fakepci.Function
	// OnSend takes the frames that are sent. It is called with the device's lock held.
	OnSend func(Sent)
	// Backward has the frames of one doorbell completed in the opposite order.
	Backward bool
	// Quick has doorbells only noted, without a lock; Fill and Drain do what they would have done.
	// It is for one goroutine.
	Quick bool

	options    Options
	stride     uint64 // of interfaces
	unit       uint64 // 2^(W-5): of the parts before the completion queues
	interfaces []iface
	window     fakepci.Window // of buffers
}

// iface has the state of an interface besides its registers.
type iface struct {
	start          uint64
	eq, cq, tx, rx []queue
}

// New makes a device.
func New(o Options) (*Device, error) {
	o.Interfaces, o.Queues, o.Vectors = cmp.Or(o.Interfaces, 1), cmp.Or(o.Queues, 64), cmp.Or(o.Vectors, 64)
	o.Features, o.MaxFrame = cmp.Or(o.Features, 1<<0|1<<4|1<<8|1<<9|1<<10), cmp.Or(o.MaxFrame, 9214)
	d := &Device{options: o}
	d.stride = barBytes >> bits.Len(uint(o.Interfaces-1))
	d.unit = d.stride >> 5
	p := fakepci.Options{Vendor: 0x1234, Device: 0x1001, Subvendor: 0x10ee, Subdevice: 0x90c8, Vectors: o.Vectors,
		MSIXTable: 0x10000, MSIXPending: 0x18000, Bytes: barBytes}
	if o.App != 0 {
		p.Extra = map[int]uint64{vfio.RegionBAR2: 0x10000}
	}
	var err error
	if d.Function, err = fakepci.New(d, p); err != nil {
		return nil, err
	}
	d.PowerOn()
	return d, nil
}

func (d *Device) PowerOn() {
	o := d.options
	d.interfaces = make([]iface, o.Interfaces)
	for k := range d.interfaces {
		d.interfaces[k] = iface{uint64(k) * d.stride, make([]queue, o.Queues), make([]queue, 2*o.Queues), make([]queue, o.Queues), make([]queue, o.Queues)}
	}
	d.global()
	for k := range d.interfaces {
		d.blocks(d.interfaces[k].start)
	}
}

func (d *Device) On() string {
	for k := range d.interfaces {
		for _, list := range [][]queue{d.interfaces[k].rx, d.interfaces[k].tx} {
			for i := range list {
				// What belongs to another interface may go on: its memory is at other addresses.
				if list[i].on && len(d.interfaces) == 1 {
					return fmt.Sprintf("queue %d of interface %d", i, k)
				}
			}
		}
	}
	return ""
}

func (d *Device) Forget() {
	d.window = fakepci.Window{}
	for k := range d.interfaces {
		for _, list := range [][]queue{d.interfaces[k].eq, d.interfaces[k].cq, d.interfaces[k].tx, d.interfaces[k].rx} {
			for i := range list {
				list[i].window = fakepci.Window{}
			}
		}
	}
}

// SetLink makes the link of all ports go up or down.
func (d *Device) SetLink(up bool) {
	d.With(func() {
		for k := range d.interfaces {
			for _, at := range []uint64{0x10, 0x14} {
				at += d.Control(k) + portControl
				if v := d.Get(at) &^ (1 << 16); up {
					d.Set(at, v|1<<16)
				} else {
					d.Set(at, v)
				}
			}
		}
	})
}

func (d *Device) WriteRegion(index int, offset uint64, p []byte) error {
	if d.Quick && index == vfio.RegionBAR0 && len(p) == 4 {
		if q, _ := d.find(offset); q != nil {
			q.point(uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16 | uint32(p[3])<<24)
			return nil
		}
	}
	return d.Function.WriteRegion(index, offset, p)
}
