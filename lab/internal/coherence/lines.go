package coherence

import "github.com/trapeze-nic/trapeze/pipeline"

// lines are the NIC's DMA transfers, block by block through the bridge. The bridge is a data movement
// device with Prefetch buffers. Transfers follow each other without end.
type lines struct {
	*contest
	device *pipeline.Device
	line   int    // of the transfer, that comes into the bridge next.
	count  int    // of a transfer.
	out    int    // lines of the transfer that have left.
	freed  []Time // when each buffer is free; the next to be used first.
	row    int    // bytes of the burst on PCI.
	came   []Time // when each line of the transfer was in the bridge.
	idle   Time   // when the next line may come.
	ends   Time   // the last line on PCI.

	began Time   // the transfer.
	took  []Time // each transfer that has ended.
	ended []Time // when.
	left  []Time // when each line was at its end.
}

// begin starts the first transfer.
func (l *lines) begin(c *contest) (err error) {
	l.contest = c
	if c.o.DMA == NoDMA {
		return nil
	}
	b := c.o.System.Bridge
	l.count = ceil(c.o.Bytes, c.NIC.Block)
	l.freed, l.came = make([]Time, b.Prefetch), make([]Time, l.count)
	if l.device, err = pipeline.NewDevice(pipeline.StoreAndForward{}, b.Prefetch); err != nil {
		return err
	}
	l.idle = b.Start
	l.start()
	return nil
}

// busy is the bus on which the NIC has asked for something.
func (l *lines) busy() *bus {
	if len(l.pci.waiting) > 0 {
		return &l.pci
	}
	return &l.machine.bus
}

// start brings the next line into the bridge, if there is a buffer for it. A transfer begins
// when the one before has left.
func (l *lines) start() {
	if l.line == l.count || !l.device.CanStart() {
		return
	}
	_, err := l.device.Start(l.NIC.Block)
	l.note(err)
	line := l.line
	l.line++
	in := l.overMemory
	if l.o.DMA == Received {
		in = l.overPCI
	}
	in(max(l.idle, l.freed[0]), line, func(end Time) {
		l.idle, l.came[line] = end, end
		l.note(l.device.Arrived(l.NIC.Block))
		l.leave(end)
		l.start()
	})
}

// leave moves the oldest line out of the bridge, if it is idle.
func (l *lines) leave(at Time) {
	if n, _ := l.device.Move(); n == 0 {
		return
	}
	out := l.overPCI
	if l.o.DMA == Received {
		out = l.overMemory
	}
	line := l.out
	l.out++
	out(max(at, l.came[line]), line, func(end Time) {
		l.note(l.device.Done())
		l.freed = append(l.freed[1:], end)
		l.left = append(l.left, end)
		if line == l.count-1 {
			l.took, l.ended = append(l.took, end-l.began), append(l.ended, end)
			l.line, l.out, l.began = 0, 0, end
			l.idle = end + l.o.System.Bridge.Start
			l.start()
			return
		}
		l.leave(end)
		l.start()
	})
}

// overMemory moves a line over the memory bus, and calls then when it is known when that ends.
// If the program wants this bus, too, it waits there.
func (l *lines) overMemory(at Time, line int, then func(end Time)) {
	b := &l.machine.bus
	block := l.starts[Payload] + line
	l.ask(b, l.o.Program == BlockCopy, at, false, func() phases {
		var p phases
		if l.o.DMA == SendDMA {
			p = l.fetch(block, l.full())
			// Memory is its only owner: the NIC keeps no copy.
			l.blocks[block].nic = invalid
			return p
		}
		l.blocks[block].written++
		l.blocks[block].local = l.blocks[block].written
		return l.writeBack(block, l.full())
	}, then)
}

// overPCI moves a line over PCI. It goes on with the burst before if nothing came between.
func (l *lines) overPCI(at Time, line int, then func(end Time)) {
	follows := func(begin Time) bool { return l.row > 0 && begin <= l.ends }
	joins := follows(at) && l.row < l.o.System.Bridge.Burst
	l.ask(&l.pci, l.o.Program != BlockCopy, at, joins, func() phases {
		begin := l.pci.grant(at)
		p := phases{kind: DMARead, agent: NIC, block: line, bytes: l.NIC.Block, data: l.pci.Data(l.NIC.Block, l.pci.Peak())}
		if follows(begin) {
			p.data -= l.pci.Arbitration + l.pci.Address // the bus and the address are there
		} else {
			l.row = 0
		}
		l.row += l.NIC.Block
		l.ends = begin + l.pci.span(p)
		return p
	}, then)
}

// ask requests a bus, and waits for it if it is contended.
func (l *lines) ask(b *bus, contended bool, at Time, joins bool, do func() phases, then func(end Time)) {
	if !contended {
		then(b.perform(request{at: at, do: do}))
		return
	}
	b.waiting = append(b.waiting, request{at: at, joins: joins, do: func() phases {
		p := do()
		then(b.grant(at) + b.span(p)) // what it asks for waits for this to end
		return p
	}})
}

// end takes the rate and the mean transfer from a time to another; without a program, of all.
func (l *lines) end(from, to Time) {
	if l.o.DMA == NoDMA {
		return
	}
	if l.o.Program == NoProgram || l.starves() {
		to = l.machine.bus.free
		if len(l.left) > 0 {
			to = l.left[len(l.left)-1]
		}
	}
	moved := 0
	for _, t := range l.left {
		if t > from && t <= to {
			moved += l.NIC.Block
		}
	}
	l.dmaRate = megabytes(moved, to-from)
	n, sum := 0, Time(0)
	for i, t := range l.ended {
		if t-l.took[i] >= from && t <= to {
			sum += l.took[i]
			n++
		}
	}
	if n > 0 {
		l.transfer = sum / Time(n)
	}
}
