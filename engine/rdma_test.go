package engine_test

import (
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

func withRights(access datasheet.Access) func(*datasheet.CreateEndpointBody) {
	return func(b *datasheet.CreateEndpointBody) { b.Rights = access }
}
