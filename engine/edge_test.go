package engine_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestDescriptorAtTheEdge: what a descriptor has behind the end of its region is out of reach, although the memory there
// belongs to the same mapping.
func TestDescriptorAtTheEdge(t *testing.T) {
	for _, tt := range []struct {
		name  string
		make  func(d *descriptors.Descriptor) error
		bytes uint64 // of the descriptor
		sound bool
	}{
		{"inline, within", func(d *descriptors.Descriptor) error { return d.SetInline(16) }, 48, true},
		{"inline, beyond", func(d *descriptors.Descriptor) error { return d.SetInline(17) }, 64, false},
		{"inline, far beyond", func(d *descriptors.Descriptor) error { return d.SetInline(224) }, 256, false},
		{"write, beyond", func(d *descriptors.Descriptor) error {
			return errors.Join(d.SetRDMAWrite(hostBase, 1), d.AddData(hostBase, 1, 8))
		}, 64, false},
		{"read, beyond", func(d *descriptors.Descriptor) error {
			return errors.Join(d.SetRDMARead(hostBase, 1), d.AddData(hostBase, 1, 8))
		}, 64, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, v, p, _ := slotsPair(t, func(b *datasheet.CreateEndpointBody) {
				b.Rights = datasheet.AccessRDMAWrite | datasheet.AccessRDMARead
			})
			mustArrive(t, v, p, 64, 1)
			const room = 48 // bytes of the descriptor in its region
			mem, address, iova := v.n.alloc(1024)
			r := do(v.n, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{Address: address, Length: 512 + room, IOVA: iova})
			handle := datasheet.Reply[datasheet.RegionReply](r).Handle
			receive, _ := p.descriptor(256)
			p.postRecv(receive)
			w.settle()
			warm := must.Get(descriptors.NewDescriptor(mem[:64], address, handle))(t)
			must.OK(t, warm.SetInline(8))
			v.postSend(warm)
			w.run("a send within the region", func() bool { return warm.Status().Done() })
			again, _ := p.descriptor(256)
			p.postRecv(again)
			w.settle()
			d := must.Get(descriptors.NewDescriptor(mem[512:512+tt.bytes+16], address+512, handle))(t)
			must.OK(t, tt.make(d))
			v.postSend(d)
			w.run("the send", func() bool { return d.Status().Done() })
			if s := d.Status(); s.Failed() == tt.sound || !tt.sound && s&(datasheet.StatusProtectionError|datasheet.StatusFormatError) == 0 {
				t.Errorf("status %v", s)
			}
		})
	}
}
