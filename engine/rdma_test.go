package engine_test

import (
	"bytes"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

const bothRights = datasheet.AccessRDMAWrite | datasheet.AccessRDMARead

// target is memory of a VI's host that its peer may write and read.
type target struct {
	mem     []byte
	address uint64
	handle  uint32
}

func (v *vi) target(size int, access datasheet.Access) target {
	mem, address, iova := v.n.alloc(size)
	r := do(v.n, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{
		Address: address, Length: uint64(size), IOVA: iova, Access: access})
	return target{mem, address, datasheet.Reply[datasheet.RegionReply](r).Handle}
}

// write is an RDMA write of data, in pieces of the given sizes, to an offset of to; read
// the same for a read.
func (v *vi) write(to target, offset int, data []byte, sizes ...int) *descriptors.Descriptor {
	d, out := v.remote(sizes...)
	for _, b := range out {
		data = data[copy(b, data):]
	}
	if err := d.SetRDMAWrite(to.address+uint64(offset), to.handle); err != nil {
		v.n.w.t.Fatal(err)
	}
	return d
}

func (v *vi) read(from target, offset int, sizes ...int) (*descriptors.Descriptor, [][]byte) {
	d, in := v.remote(sizes...)
	if err := d.SetRDMARead(from.address+uint64(offset), from.handle); err != nil {
		v.n.w.t.Fatal(err)
	}
	return d, in
}

// remote is descriptor with room for an address segment.
func (v *vi) remote(sizes ...int) (*descriptors.Descriptor, [][]byte) {
	mem, address, _ := v.n.alloc(descriptors.DescriptorBytes(len(sizes) + 1))
	d, err := descriptors.NewDescriptor(mem, address, v.handle)
	var bufs [][]byte
	for _, s := range sizes {
		buf, at, _ := v.n.alloc(s)
		bufs = append(bufs, buf)
		if err == nil {
			err = d.AddData(at, v.handle, uint32(s))
		}
	}
	if err != nil {
		v.n.w.t.Fatal(err)
	}
	return d, bufs
}

// wires runs f over a wire with a window and over one that loses nothing.
func wires(t *testing.T, f func(t *testing.T, options ...option)) {
	t.Run("window", func(t *testing.T) { f(t) })
	t.Run("lossless", func(t *testing.T) { f(t, exactly(nil)) })
}

func withRights(access datasheet.Access) func(*datasheet.CreateEndpointBody) {
	return func(b *datasheet.CreateEndpointBody) { b.Rights = access }
}

func mustComplete(t testing.TB, w *world, d *descriptors.Descriptor, want datasheet.Status) {
	t.Helper()
	w.run("a completion", func() bool { return d.Status().Done() })
	if d.Status() != want|datasheet.StatusDone {
		t.Fatalf("status %#x (%v), want %#x (%v)", uint32(d.Status()), d.Status(), uint32(want), want)
	}
}

var rdmaSizes = []int{0, 1, 63, 64, 1968, 1969, 2048 - 64, 20_000, 300_000}

func TestRDMAWrite(t *testing.T) {
	wires(t, func(t *testing.T, options ...option) {
		levels(t, func(t *testing.T, level datasheet.Reliability, _ func(*datasheet.CreateEndpointBody)) {
			w, v, p := pair(t, func(b *datasheet.CreateEndpointBody) {
				b.Rights, b.Reliability = datasheet.AccessRDMAWrite, level
			}, options...)
			to := p.target(400_000, datasheet.AccessRDMAWrite)
			for i, size := range rdmaSizes {
				data := pattern(size, uint64(size))
				before := bytes.Clone(to.mem)
				d := v.write(to, 100+i, data, size/3, 0, size-size/3)
				v.postSend(d)
				mustComplete(t, w, d, datasheet.StatusOpRDMAWrite)
				w.settle()
				copy(before[100+i:], data)
				if !bytes.Equal(to.mem, before) || int(d.Length()) != size {
					t.Fatalf("%d bytes: Length %d, and the memory is not what it should be", size, d.Length())
				}
			}
			if p.recv.producer != 0 || len(w.b.events) != 0 {
				t.Errorf("%d receives, events %v", p.recv.producer, w.b.events)
			}
		})
	})
}

func TestRDMAWriteWithImmediate(t *testing.T) {
	wires(t, func(t *testing.T, options ...option) {
		levels(t, func(t *testing.T, level datasheet.Reliability, _ func(*datasheet.CreateEndpointBody)) {
			w, v, p := pair(t, func(b *datasheet.CreateEndpointBody) {
				b.Rights, b.Reliability = datasheet.AccessRDMAWrite, level
			}, options...)
			to := p.target(400_000, datasheet.AccessRDMAWrite)
			for _, size := range rdmaSizes {
				data := pattern(size, uint64(size))
				r, in := p.descriptor(10)
				p.postRecv(r)
				d := v.write(to, 5, data, size)
				d.SetImmediate(uint32(size))
				v.postSend(d)
				mustComplete(t, w, d, datasheet.StatusOpRDMAWrite)
				mustComplete(t, w, r, datasheet.StatusOpRemoteRDMAWrite|datasheet.StatusImmediate)
				mustEqual(t, to.mem[5:5+size], data)
				if imm, ok := r.Immediate(); !ok || imm != uint32(size) || int(r.Length()) != size || !bytes.Equal(in[0], make([]byte, 10)) {
					t.Fatalf("%d bytes: immediate %d, length %d, buffer %v", size, imm, r.Length(), in[0])
				}
			}
			sent, received, got := message(v, p, []byte("a send"))
			if sent.Failed() || received != datasheet.StatusDone|datasheet.StatusOpReceive || string(got) != "a send" {
				t.Errorf("a send after them: %v, %#x, %q", sent, uint32(received), got)
			}
		})
	})
}

func TestRDMARead(t *testing.T) {
	wires(t, func(t *testing.T, options ...option) {
		w, v, p := pair(t, withRights(datasheet.AccessRDMARead), options...)
		from := p.target(400_000, datasheet.AccessRDMARead)
		copy(from.mem, pattern(len(from.mem), 1))
		for i, size := range rdmaSizes {
			d, in := v.read(from, 100+i, size/3, 0, size-size/3)
			v.postSend(d)
			mustComplete(t, w, d, datasheet.StatusOpRDMARead)
			mustEqual(t, bytes.Join(in, nil), from.mem[100+i:100+i+size])
			if int(d.Length()) != size {
				t.Fatalf("%d bytes: Length %d", size, d.Length())
			}
		}
	})
}

// TestManyReads posts more reads than a peer serves at a time, with sends between them
// and sends the other way: sends pass reads, completions do not.
func TestManyReads(t *testing.T) {
	wires(t, func(t *testing.T, options ...option) {
		w, v, p := pair(t, withRights(bothRights), options...)
		from := p.target(64*1000, bothRights)
		copy(from.mem, pattern(len(from.mem), 2))
		var posted, receives, back []*descriptors.Descriptor
		var got [][]byte
		for i := range 30 {
			d, in := v.read(from, 1000*i, 5000)
			s, out := v.descriptor(300)
			copy(out[0], pattern(300, uint64(i)))
			r, at := p.descriptor(300)
			b, _ := p.descriptor(700)
			posted, receives, back, got = append(posted, d, s), append(receives, r), append(back, b), append(got, in[0], at[0])
			h, _ := v.descriptor(700)
			v.postRecv(h)
		}
		p.postRecv(receives...)
		v.postSend(posted...)
		p.postSend(back...)
		w.run("all completions", func() bool {
			for i, d := range posted[1:] {
				if d.Status().Done() && !posted[i].Status().Done() {
					t.Fatalf("descriptor %d completed before the one that was posted before it", i+1)
				}
			}
			return posted[len(posted)-1].Status().Done() && back[len(back)-1].Status().Done()
		})
		for i := range 30 {
			mustEqual(t, got[2*i], from.mem[1000*i:][:5000])
			mustEqual(t, got[2*i+1], pattern(300, uint64(i)))
		}
	})
}

// TestFence: a write with a fence waits for the reads before it, one without does not.
func TestFence(t *testing.T) {
	for _, fence := range []bool{false, true} {
		w, v, p := pair(t, withRights(bothRights))
		to := p.target(4096, bothRights)
		// Responses get lost as long as it is held.
		held := true
		w.b.port.spoil = func(f []byte) [][]byte {
			if held && datasheet.HeaderAt(f).Type == datasheet.FrameReadResponse {
				return nil
			}
			return [][]byte{f}
		}
		d, in := v.read(to, 0, 1000)
		s := v.write(to, 0, bytes.Repeat([]byte{9}, 1000), 1000)
		if fence {
			s.SetFence()
		}
		v.postSend(d, s)
		for range 20_000 {
			w.a.e.Step()
			w.b.e.Step()
		}
		if d.Status().Done() || s.Status().Done() {
			t.Fatalf("fence %v: read %v, write %v", fence, d.Status(), s.Status())
		}
		if landed := to.mem[0] == 9; landed == fence {
			t.Fatalf("fence %v: the write has landed: %v", fence, landed)
		}
		held = false
		mustComplete(t, w, d, datasheet.StatusOpRDMARead)
		mustComplete(t, w, s, datasheet.StatusOpRDMAWrite)
		if fence {
			mustEqual(t, in[0], make([]byte, 1000))
		}
		if to.mem[999] != 9 {
			t.Fatalf("fence %v: the write has not landed", fence)
		}
	}
}

// TestReceiveWaitsForWrites: a receive does not complete before the writes that were posted
// before its message have landed, whatever is lost of them.
func TestReceiveWaitsForWrites(t *testing.T) {
	w, v, p := pair(t, withRights(bothRights))
	to := p.target(4096, bothRights)
	lost := false
	w.a.port.spoil = func(f []byte) [][]byte {
		if h := datasheet.HeaderAt(f); !lost && h.Type == datasheet.FrameWrite {
			lost = true
			return nil
		}
		return [][]byte{f}
	}
	r, _ := p.descriptor(10)
	p.postRecv(r)
	w.settle()
	d := v.write(to, 0, bytes.Repeat([]byte{7}, 100), 100)
	s, _ := v.descriptor(10)
	v.postSend(d, s)
	w.run("the receive", func() bool { return r.Status().Done() })
	if !lost || to.mem[99] != 7 {
		t.Fatalf("lost %v, the write has landed: %v", lost, to.mem[99] == 7)
	}
	mustComplete(t, w, s, 0)
}

// TestWritesNeedNoReceive: without any receive of the peer, writes go and sends wait.
func TestWritesNeedNoReceive(t *testing.T) {
	wires(t, func(t *testing.T, options ...option) {
		w, v, p := pair(t, withRights(bothRights), options...)
		to := p.target(4096, bothRights)
		first := v.write(to, 0, []byte{1}, 1)
		s, _ := v.descriptor(10)
		second := v.write(to, 1, []byte{2}, 1)
		v.postSend(first, s, second)
		mustComplete(t, w, first, datasheet.StatusOpRDMAWrite)
		w.settle()
		if s.Status().Done() || to.mem[1] != 0 {
			t.Fatalf("the send: %v; the write behind it has landed: %v", s.Status(), to.mem[1] != 0)
		}
		r, _ := p.descriptor(10)
		p.postRecv(r)
		mustComplete(t, w, s, 0)
		mustComplete(t, w, second, datasheet.StatusOpRDMAWrite)
		if to.mem[1] != 2 {
			t.Error("the second write has not landed")
		}
	})
}

// TestFlushedOperation: a descriptor that is flushed before the NIC has begun it says which
// operation it was, on a VI without a connection and behind a fence.
func TestFlushedOperation(t *testing.T) {
	for name, connected := range map[string]bool{"not connected": false, "behind a fence": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			v, p := w.a.newVI(w.a.memory(0, 0), withRights(bothRights)), w.b.newVI(w.b.memory(0, 0), withRights(bothRights))
			to := p.target(64, bothRights)
			if connected {
				connect(v, p)
				w.b.port.spoil = func(f []byte) [][]byte { // no read is answered
					if datasheet.HeaderAt(f).Type == datasheet.FrameReadResponse {
						return nil
					}
					return [][]byte{f}
				}
				first, _ := v.read(to, 0, 8)
				v.postSend(first)
			}
			send, _ := v.descriptor(8)
			write := v.write(to, 0, make([]byte, 8), 8)
			read, _ := v.read(to, 0, 8)
			for _, d := range []*descriptors.Descriptor{send, write, read} {
				d.SetFence()
			}
			v.postSend(send, write, read)
			w.settleOnly(w.a)
			if connected {
				do(v.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
			}
			for d, op := range map[*descriptors.Descriptor]datasheet.Status{
				send: datasheet.StatusOpSend, write: datasheet.StatusOpRDMAWrite, read: datasheet.StatusOpRDMARead} {
				if got, want := d.Status(), datasheet.StatusDone|datasheet.StatusFlushed|op; got != want {
					t.Errorf("status %v, want %v", got, want)
				}
			}
		})
	}
}
