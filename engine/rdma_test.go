package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
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
	must.OK(v.n.w.t, d.SetRDMAWrite(to.address+uint64(offset), to.handle))
	return d
}

func (v *vi) read(from target, offset int, sizes ...int) (*descriptors.Descriptor, [][]byte) {
	d, in := v.remote(sizes...)
	must.OK(v.n.w.t, d.SetRDMARead(from.address+uint64(offset), from.handle))
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
	must.OK(v.n.w.t, err)
	return d, bufs
}

// wires runs f over a wire with a window, over one that loses nothing, and over one that also carries short frames.
func wires(t *testing.T, f func(t *testing.T, options ...option)) {
	t.Run("window", func(t *testing.T) { f(t) })
	t.Run("lossless", func(t *testing.T) { f(t, exactly(nil)) })
	t.Run("short", func(t *testing.T) { f(t, exactly(nil), withSlots) })
}

func withRights(access datasheet.Access) func(*datasheet.CreateEndpointBody) {
	return func(b *datasheet.CreateEndpointBody) { b.Rights = access }
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
