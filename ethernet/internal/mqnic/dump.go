package mqnic

import (
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/function"
	"github.com/trapeze-nic/trapeze/vfio"
)

// dump implements Driver.Dump.
func dump(dev vfio.Device) (tables []ethernet.Table, err error) {
	const timeout = 2 * time.Second // nothing is waited for
	f, err := function.Open(dev, timeout)
	if err != nil {
		err = errors.Join(err, dev.Close())
	} else {
		r := registers{f: f}
		var c *card
		if r.Registers, err = f.OpenRegisters(vfio.RegionBAR0, leastBytes); err == nil {
			c, err = r.readCard(r.BAR().Size())
		}
		if err == nil {
			tables, err = r.dump(c)
		}
		err = errors.Join(err, f.Close(nil)) // it was no bus master
	}
	if err != nil {
		return nil, &ethernet.Error{Op: "dump", Device: dev.Info().Address, Err: err, Hint: hint(err)}
	}
	return tables, nil
}

// dump reads all that is shown of a card and of its interfaces.
func (r *registers) dump(c *card) ([]ethernet.Table, error) {
	tables := []ethernet.Table{
		{Name: "card", Columns: []string{"what", "value"}, Rows: [][]string{
			{"board", boardName(c.board)}, {"board id", hex(c.board)}, {"firmware id", hex(c.firmware)},
			{"interfaces", fmt.Sprint(c.interfaces)}, {"application", hex(c.app)},
		}},
		blockTable("blocks", c.blocks),
	}
	flash, err := r.flash(c)
	if err != nil {
		return nil, err
	}
	tables = append(tables, flash)
	for i := range c.interfaces {
		l, err := r.readInterface(c, i)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("interface %d", i)
		tables = append(tables, r.interfaceTable(name, l), blockTable(name+": blocks", l.blocks), r.queueTable(name+": queues", l))
	}
	if c.stats != nil {
		t, err := r.statistics(*c.stats, c.end)
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	r.alive()
	return tables, r.Err()
}

func hex(v uint32) string { return fmt.Sprintf("%08x", v) }

// blockTable lists blocks, also those that the driver does not know.
func blockTable(name string, list []block) ethernet.Table {
	t := ethernet.Table{Name: name, Columns: []string{"at", "type", "version", "name", "known"}, Rows: [][]string{}}
	for _, b := range list {
		what, known := "", "no"
		for _, k := range kinds {
			if k.id == b.kind {
				if what = k.name; k.version == b.version {
					known = "yes"
				}
			}
		}
		t.Rows = append(t.Rows, []string{fmt.Sprintf("%#x", b.at), hex(b.kind), version(b.version), what, known})
	}
	return t
}

// interfaceTable tells what an interface can do, how its first port is, and its flow control.
func (r *registers) interfaceTable(name string, l *layout) ethernet.Table {
	t := ethernet.Table{Name: name, Columns: []string{"what", "value"}, Rows: [][]string{
		{"features", hex(l.features)}, {"ports", fmt.Sprint(len(l.ports))}, {"longest frame sent", fmt.Sprint(l.maxTX)},
		{"longest frame received", fmt.Sprint(l.maxRX)},
		{"frames sent up to", fmt.Sprint(r.Read(l.ctrl + ifTX))}, {"frames received up to", fmt.Sprint(r.Read(l.ctrl + ifRX))},
	}}
	for _, m := range []manager{l.eq, l.cq, l.tx, l.rx} {
		t.Rows = append(t.Rows, []string{m.name, fmt.Sprintf("%d queues from %#x, %d bytes apart", m.count, m.at, m.stride)})
	}
	for i, at := range l.ports {
		port := fmt.Sprintf("port %d: ", i)
		t.Rows = append(t.Rows, []string{port + "features", hex(r.Read(at + portFeatures))},
			[]string{port + "TX control", hex(r.Read(at + portTX))}, []string{port + "RX control", hex(r.Read(at + portRX))},
			[]string{port + "LFC", hex(r.Read(at + portLFC))})
		for class := range uint64(8) {
			t.Rows = append(t.Rows, []string{fmt.Sprintf("%sPFC of class %d", port, class), hex(r.Read(at + portPFC + 4*class))})
		}
	}
	return t
}

// Registers of queues that only dump reads.
const (
	queueOn       = 1 << 0  // of transmit and receive queues
	eventsOn      = 1 << 16 // of event and completion queues
	queueSizes    = 0x0c    // completion queue 23:0, log2 of the size 27:24 and of the block 31:28
	queuePointers = 0x10
	eventPointers = 0x0c
)

// queueTable lists the queues that are on.
func (r *registers) queueTable(name string, l *layout) ethernet.Table {
	t := ethernet.Table{Name: name, Columns: []string{"kind", "queue", "size", "descriptors of a block", "reports to", "producer", "consumer"}, Rows: [][]string{}}
	for _, m := range []manager{l.eq, l.cq, l.tx, l.rx} {
		work := m.stride >= 32
		for i := range m.count {
			at := m.queue(i)
			v := r.Read(at + queueCommand)
			size, block, target, pointers := v>>28, "", v&0xffff, uint64(eventPointers)
			if r.Err() != nil || !work && v&eventsOn == 0 || work && v&queueOn == 0 {
				continue
			}
			if work {
				v = r.Read(at + queueSizes)
				size, block, target, pointers = v>>24&15, fmt.Sprint(1<<(v>>28&3)), v&0xffffff, queuePointers
			}
			v = r.Read(at + pointers)
			t.Rows = append(t.Rows, []string{m.name, fmt.Sprint(i), fmt.Sprint(1 << size), block, fmt.Sprint(target), fmt.Sprint(v & 0xffff), fmt.Sprint(v >> 16)})
		}
	}
	return t
}

// flash lists the segments of the flash memory from which the FPGA is loaded. A block says how large
// the first one is (utils/flash.c). Nothing here writes to it.
func (r *registers) flash(c *card) (ethernet.Table, error) {
	t := ethernet.Table{Name: "flash", Columns: []string{"kind", "segment", "use", "KiB"}, Rows: [][]string{}}
	for _, k := range []kind{kindSPIFlash, kindBPIFlash} {
		list, err := all(c.blocks, k, c.end)
		if err != nil {
			return t, err
		}
		for _, b := range list {
			format := r.Read(b.at + 0x0c)
			for i := range format & 0xf {
				use, size := "", ""
				if i == format>>4&0xf {
					use = "default"
				}
				if i == format>>8&0xf {
					use = "fallback"
				}
				if i == 0 {
					size = fmt.Sprint(format >> 12 * 4)
				}
				t.Rows = append(t.Rows, []string{k.name, fmt.Sprint(i), use, size})
			}
		}
	}
	return t, nil
}
