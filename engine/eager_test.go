package engine_test

import (
	"bytes"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// eagerMemory is an eager region as its host knows it.
type eagerMemory struct {
	datasheet.Eager
	n       *node
	mem     []byte
	address uint64
	where   datasheet.RegionReply
	blocks  []byte
	status  []byte
}

// eagerMemory registers size bytes, skip bytes behind a multiple of 64, whose device memory
// is in sram.
func (n *node) eagerMemory(sram []byte, skip, size int, access datasheet.Access) *eagerMemory {
	n.w.t.Helper()
	mem, address, iova := n.alloc(skip + size)
	access |= datasheet.AccessEager
	r := do(n, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{
		Address: address + uint64(skip), Length: uint64(size), IOVA: iova + uint64(skip), Access: access})
	m := &eagerMemory{n: n, mem: mem[skip:], address: address + uint64(skip), where: *datasheet.Reply[datasheet.RegionReply](r)}
	log2 := uint8(datasheet.EagerLog2)
	if access&datasheet.AccessEagerWide != 0 {
		log2 = datasheet.EagerWideLog2
	}
	if m.where.BlockLog2 != log2 || m.where.Blocks < sramFrom || m.where.Blocks%(1<<log2) != 0 {
		n.w.t.Fatalf("%+v", m.where)
	}
	m.Eager = datasheet.EagerLayout(m.address, uint64(size), log2)
	m.blocks = sram[m.where.Blocks:][:m.BlockBytes()]
	m.status = sram[m.where.Status:][:m.Count]
	return m
}

// push does what a host does that pushes n bytes from offset on.
func (m *eagerMemory) push(offset, n int) {
	for b, end := m.Span(uint64(offset), uint64(n)); b < end; b++ {
		for i := range uint64(1) << m.Log2 {
			if at := b<<m.Log2 + i - m.Lead; at < uint64(len(m.mem)) {
				m.blocks[b<<m.Log2+i] = m.mem[at]
			}
		}
		m.status[b] = datasheet.EagerValid
	}
}

// descriptor lays a descriptor for n bytes at offset over the memory, which is aligned, and
// pushes it.
func (m *eagerMemory) descriptor(at, offset, n int) *descriptors.Descriptor {
	m.n.w.t.Helper()
	d, err := descriptors.NewDescriptor(m.mem[at:][:descriptors.DescriptorBytes(1)], m.address+uint64(at), m.where.Handle)
	if err == nil {
		err = d.AddData(m.address+uint64(offset), m.where.Handle, uint32(n))
	}
	must.OK(m.n.w.t, err)
	m.push(at, descriptors.DescriptorBytes(1))
	return d
}

func (n *node) counted(c datasheet.Counter) func() uint64 {
	before := n.e.Counter(c)
	return func() uint64 { return n.e.Counter(c) - before }
}

// TestEagerSend: of a message that has been pushed, descriptor included, no byte is read from
// host memory, and what has been taken back is.
func TestEagerSend(t *testing.T) {
	for _, access := range []datasheet.Access{0, datasheet.AccessEagerWide, datasheet.AccessReadOnly} {
		w, v, p := pair(t, nil)
		m := w.a.eagerMemory(w.a.mapSRAM(1<<20, sramFrom), 0, 8192, access&^datasheet.AccessReadOnly)
		const at, size = 1000, 5000
		data := pattern(size, 1)
		copy(m.mem[at:], data)
		s := m.descriptor(0, at, size)
		m.push(at, size)
		clear(m.mem[at:][:size]) // only the device has it now
		r, in := p.descriptor(size)
		p.postRecv(r)
		blocks, reads := w.a.counted(datasheet.CounterEagerBlocks), w.a.counted(datasheet.CounterEagerReads)
		v.postSend(s)
		w.run("a message", func() bool { return s.Status().Done() && r.Status().Done() })
		mustEqual(t, in[0], data)
		if blocks() == 0 || reads() != 0 {
			t.Fatalf("%d blocks, %d reads", blocks(), reads())
		}
		if m.status[0] == datasheet.EagerValid {
			t.Fatal("the block of the descriptor is good, whose status the device has written")
		}

		// Blocks in the middle are the host's again.
		first, end := m.Span(at+1000, 300)
		for b := first; b < end; b++ {
			m.status[b] = 0
		}
		s.Rearm()
		r.Rearm()
		m.push(0, 64)
		p.postRecv(r)
		v.postSend(s)
		w.run("a message", func() bool { return s.Status().Done() && r.Status().Done() })
		from, to := int(first<<m.Log2)-at, int(end<<m.Log2)-at
		clear(data[from:to])
		mustEqual(t, in[0], data)
		if reads() == 0 {
			t.Fatal("nothing was read")
		}
	}
}

// TestEagerInline: inline data comes from the blocks of its descriptor.
func TestEagerInline(t *testing.T) {
	w, v, p := pair(t, nil)
	m := w.a.eagerMemory(w.a.mapSRAM(1<<20, sramFrom), 0, 4096, 0)
	const segments, size = 20, 300
	d := must.Get(descriptors.NewDescriptor(m.mem[:descriptors.DescriptorBytes(segments)], m.address, m.where.Handle))(t)
	data := pattern(size, 2)
	copy(d.Inline(), data)
	must.OK(t, d.SetInline(size))
	m.push(0, datasheet.ControlSegmentSize+size)
	reads := w.a.counted(datasheet.CounterEagerReads)
	r, in := p.descriptor(size)
	p.postRecv(r)
	v.postSend(d)
	w.run("a message", func() bool { return d.Status().Done() && r.Status().Done() })
	mustEqual(t, in[0], data)
	must.Be(t, reads(), 0, "reads")
}

// TestEagerReceive: what the device writes to a region, be it a message, an RDMA write or
// what an RDMA read brings, makes the blocks of it void: a later send has the new bytes.
func TestEagerReceive(t *testing.T) {
	allow := func(b *datasheet.CreateEndpointBody) {
		b.Rights = datasheet.AccessRDMAWrite | datasheet.AccessRDMARead
	}
	const size = 3000
	data, old := pattern(size, 3), pattern(8192, 4)
	for _, way := range []string{"message", "write", "read"} {
		t.Run(way, func(t *testing.T) {
			w, v, p := pair(t, allow)
			m := w.a.eagerMemory(w.a.mapSRAM(1<<20, sramFrom), 0, 8192, datasheet.AccessRDMAWrite|datasheet.AccessRDMARead)
			copy(m.mem, old)
			m.push(0, 8192)
			const at = 1111
			switch way {
			case "message":
				r := m.descriptor(0, at, size)
				v.postRecv(r)
				s, out := p.descriptor(size)
				copy(out[0], data)
				p.postSend(s)
				w.run("a message", func() bool { return s.Status().Done() && r.Status().Done() })
			case "write":
				d := p.write(target{m.mem, m.address, m.where.Handle}, at, data, size)
				p.postSend(d)
				w.run("a write", func() bool { return d.Status().Done() })
			case "read":
				from := p.target(size, datasheet.AccessRDMARead)
				copy(from.mem, data)
				d, err := descriptors.NewDescriptor(m.mem[:descriptors.DescriptorBytes(2)], m.address, m.where.Handle)
				if err == nil {
					err = d.SetRDMARead(from.address, from.handle)
				}
				if err == nil {
					err = d.AddData(m.address+at, m.where.Handle, size)
				}
				must.OK(t, err)
				m.push(0, descriptors.DescriptorBytes(2))
				v.postSend(d)
				w.run("a read", func() bool { return d.Status().Done() })
				if d.Status().Failed() {
					t.Fatal(d.Status())
				}
			}
			w.settle()
			mustEqual(t, m.mem[at:][:size], data)
			s := m.descriptor(7*1024, at-100, size+200)
			r, in := p.descriptor(size + 200)
			p.postRecv(r)
			v.postSend(s)
			w.run("a message back", func() bool { return s.Status().Done() && r.Status().Done() })
			mustEqual(t, in[0], m.mem[at-100:][:size+200])
			mustEqual(t, in[0][100:][:size], data)
		})
	}
}

// TestEagerRead: a peer reads host memory, whatever has been pushed.
func TestEagerRead(t *testing.T) {
	w, v, p := pair(t, func(b *datasheet.CreateEndpointBody) { b.Rights = datasheet.AccessRDMARead })
	m := p.n.eagerMemory(p.n.mapSRAM(1<<20, sramFrom), 0, 4096, datasheet.AccessRDMARead)
	copy(m.mem, pattern(4096, 5))
	m.push(0, 4096)
	copy(m.mem, pattern(4096, 6))
	d, in := v.read(target{m.mem, m.address, m.where.Handle}, 0, 4096)
	v.postSend(d)
	w.run("a read", func() bool { return d.Status().Done() })
	if d.Status().Failed() || !bytes.Equal(in[0], m.mem) {
		t.Fatalf("%v, or not what the host has", d.Status())
	}
}

// TestEagerFront: the front of a message may be read before its end has come, and says
// nothing any more when it has.
func TestEagerFront(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		w, v, p := pair(t, nil)
		m := p.n.eagerMemory(p.n.mapSRAM(1<<20, sramFrom), 0, 64<<10, 0)
		const at, size = 4096, 40_000
		data := pattern(size, 7)
		if lossy { // every third frame is lost once
			n := 0
			v.n.port.spoil = func(frame []byte) [][]byte {
				if n++; n%3 == 0 {
					return nil
				}
				return [][]byte{frame}
			}
		}
		r := m.descriptor(0, at, size)
		p.postRecv(r)
		s, out := v.descriptor(size)
		copy(out[0], data)
		v.postSend(s)
		early, before := 0, uint32(0)
		w.run("a message", func() bool {
			if r.Status().Done() {
				return true
			}
			if front := r.Control().LoadFront(); front < before {
				t.Fatalf("the front went from %d to %d", before, front)
			} else if front > before {
				if !r.Ready(front-1) || r.Ready(front) || !bytes.Equal(m.mem[at:][:front], data[:front]) {
					t.Fatalf("front %d", front)
				}
				early, before = early+1, front
			}
			// One frame at a time, so that the front is seen on its way.
			return false
		})
		if r.Status().Failed() || r.Control().Front != 0 || !r.Ready(size-1) || r.Ready(size) {
			t.Fatalf("%v, front %d", r.Status(), r.Control().Front)
		}
		if !lossy && early == 0 {
			t.Fatal("the front of the message was never seen before its end")
		}
		mustEqual(t, m.mem[at:][:size], data)
	}
}

// TestEagerLanding: a message of several frames lands in the blocks of its region, in whatever order its frames come, and is written back or
// held. What is held is sent on, is in memory when the region is deregistered, and is lost by a reset.
func TestEagerLanding(t *testing.T) {
	const at, size = 4096, 40_010
	data := pattern(size, 8)
	for _, access := range []datasheet.Access{datasheet.AccessEagerLands, datasheet.AccessEagerLands | datasheet.AccessEagerHeld} {
		for end, o := range map[string]option{"deregistered": lossy(1, 0.1, 0.1, 0.2, 0.05), "reset": inParts(nil)} {
			w, v, p := pair(t, nil, o)
			free := p.n.e.FreeSRAM()
			m := p.n.eagerMemory(p.n.mapSRAM(1<<20, sramFrom), 0, 64<<10, access)
			landed, back := p.n.counted(datasheet.CounterEagerLanded), p.n.counted(datasheet.CounterEagerWrittenBack)
			r := m.descriptor(0, at, size)
			p.postRecv(r)
			s, out := v.descriptor(size)
			copy(out[0], data)
			v.postSend(s)
			w.run("a message", func() bool { return s.Status().Done() && r.Status().Done() })
			held := access&datasheet.AccessEagerHeld != 0
			if whole := uint64(size / 64); landed() != whole || held && back() != 1 || !held && back() != whole+1 {
				t.Errorf("%d blocks have landed, %d are written back", landed(), back())
			}
			mustEqual(t, m.blocks[at:][:size/64*64], data[:size/64*64])
			for b, status := range m.status[at/64:][:size/64] {
				if status == datasheet.EagerHeld != held || status == datasheet.EagerLanded == held {
					t.Fatalf("block %d has status %d", b, status)
				}
			}
			if in := bytes.Equal(m.mem[at:][:size], data); in == held {
				t.Errorf("memory has the message: %v", in)
			}
			if end == "reset" {
				p.n.e.Reset()
				if p.n.e.FreeSRAM() < free || bytes.Equal(m.mem[at:][:size], data) == held {
					t.Errorf("%d bytes are free after a reset, %d before", p.n.e.FreeSRAM(), free)
				}
				continue
			}
			back2, in := v.descriptor(size / 2)
			v.postRecv(back2)
			forth := m.descriptor(64, at, size/2)
			p.postSend(forth)
			w.run("it sent on", func() bool { return back2.Status().Done() && forth.Status().Done() })
			mustEqual(t, in[0], data[:size/2])
			deregister(p.n, m.where.Handle)
			mustEqual(t, m.mem[at:][:size], data)
		}
	}
}
