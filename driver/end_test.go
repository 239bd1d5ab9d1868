package driver_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// end is one end of a connection: a VI and memory for slots, each a descriptor
// and its buffer.
type end struct {
	n    *driver.NIC
	ptag *driver.Ptag
	v    *driver.VI
	m    *driver.Memory
	room int // bytes of a buffer
}

// layout says how to make an end. The zero value is good.
type layout struct {
	room  int // bytes of a slot's buffer; 0: 4096
	slots int // 0: 16
	depth int // of both queues; 0: 16
}

const segmentsPerSlot = 8

func newEnd(t *testing.T, n *driver.NIC, l layout) *end {
	t.Helper()
	ctx := contextFor(t)
	set := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	set(&l.room, 4096)
	set(&l.slots, 16)
	set(&l.depth, 16)
	e := &end{n: n, room: l.room, ptag: mustPtag(t, n)}
	e.m = must.Get(n.Alloc(ctx, l.slots*e.slotSize(), driver.MemoryAttributes{Ptag: e.ptag}))(t)
	e.v = must.Get(n.CreateVI(ctx, driver.VIAttributes{Reliability: datasheet.ReliableDelivery, MaxTransfer: 64 << 10, Ptag: e.ptag,
		SendDepth: l.depth, RecvDepth: l.depth}, nil, nil))(t)
	return e
}

func (e *end) slotSize() int {
	return descriptors.DescriptorBytes(segmentsPerSlot) + (e.room+datasheet.DescriptorAlign-1)&^(datasheet.DescriptorAlign-1)
}

// buffer returns the buffer of slot i.
func (e *end) buffer(i int) []byte {
	at := i*e.slotSize() + descriptors.DescriptorBytes(segmentsPerSlot)
	return e.m.Bytes()[at:][:e.room]
}

// lay lays a descriptor over slot i with data segments of the given lengths, one
// after the other in the slot's buffer.
func (e *end) lay(i int, lengths ...int) (*descriptors.Descriptor, error) {
	at := i * e.slotSize()
	size := descriptors.DescriptorBytes(segmentsPerSlot)
	d, err := descriptors.NewDescriptor(e.m.Bytes()[at:at+size], e.m.Address()+uint64(at), e.m.Handle())
	if err != nil {
		return nil, err
	}
	data := e.m.Address() + uint64(at+size)
	for _, l := range lengths {
		if err := d.AddData(data, e.m.Handle(), uint32(l)); err != nil {
			return nil, err
		}
		data += uint64(l)
	}
	return d, nil
}

// descriptor is lay for the goroutine of the test.
func (e *end) descriptor(t *testing.T, i int, lengths ...int) *descriptors.Descriptor {
	t.Helper()
	return must.Get(e.lay(i, lengths...))(t)
}

// connect connects two VIs: b waits, a asks.
func connect(t testing.TB, a, b *driver.VI) {
	t.Helper()
	ctx := contextFor(t)
	done := make(chan error, 1)
	go func() {
		c, err := b.NIC().ConnectWait(ctx, "driver")
		if err == nil {
			_, err = c.Accept(ctx, b)
		}
		done <- err
	}()
	_, err := a.Dial(ctx, driver.Address{MAC: b.NIC().Identity().MAC, Discriminator: "driver"}, "client")
	must.OK(t, errors.Join(err, <-done))
}

// connected makes two ends of the same layout and connects them.
func connected(t *testing.T, a, b *driver.NIC, l layout) (*end, *end) {
	t.Helper()
	x, y := newEnd(t, a, l), newEnd(t, b, l)
	connect(t, x.v, y.v)
	return x, y
}

// deliver sends one message and checks what arrives. The slots are 0.
func deliver(t *testing.T, from, to *end, message []byte) {
	t.Helper()
	copy(from.buffer(0), message)
	send, recv := from.descriptor(t, 0, len(message)), to.descriptor(t, 0, len(message))
	must.OK(t, errors.Join(to.v.PostRecv(recv), from.v.PostSend(send)))
	takeSend(t, from, send)
	takeRecv(t, to, recv)
	if got := to.buffer(0)[:len(message)]; int(recv.Length()) != len(message) || !bytes.Equal(got, message) {
		t.Fatalf("%d bytes arrived, %d sent, or they differ", recv.Length(), len(message))
	}
}

// takeSend waits for the oldest send, which must be d, without an error.
func takeSend(t *testing.T, e *end, d *descriptors.Descriptor) {
	t.Helper()
	must.Give(e.v.SendWait(contextFor(t)))(t, d, "send")
}

// takeRecv waits for the oldest receive, which must be d, without an error.
func takeRecv(t *testing.T, e *end, d *descriptors.Descriptor) {
	t.Helper()
	must.Give(e.v.RecvWait(contextFor(t)))(t, d, "receive")
}
