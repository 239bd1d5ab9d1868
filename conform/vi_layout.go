package conform

import (
	"bytes"
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/via"
)

// Offsets in the control segment, in bytes (VIA 1.0; data sheet, 5.1).
const (
	offsetSegCount  = 12
	offsetControl   = 14
	offsetImmediate = 20
	offsetLength    = 24
	offsetStatus    = 28
	controlSize     = 32
)

// testLayout: a descriptor is in memory, byte for byte, what VIA says.
func testLayout(w *World) {
	m := Must(w.A.Alloc(Context(w), 4096, via.MemoryAttributes{}))(w)
	d := Must(m.NewDescriptor(64, 2))(w)
	OK(w, d.AddData(0x1122334455667788, 0x99aabbcc, 300))
	OK(w, d.AddData(m.Address()+1000, m.Handle(), 7))
	d.SetImmediate(0xfeedf00d)
	le := binary.LittleEndian
	want := make([]byte, 64)
	le.PutUint16(want[offsetSegCount:], 2)
	le.PutUint16(want[offsetControl:], 4) // a send with immediate data
	le.PutUint32(want[offsetImmediate:], 0xfeedf00d)
	le.PutUint32(want[offsetLength:], 307)
	le.PutUint64(want[32:], 0x1122334455667788)
	le.PutUint32(want[40:], 0x99aabbcc)
	le.PutUint32(want[44:], 300)
	le.PutUint64(want[48:], m.Address()+1000)
	le.PutUint32(want[56:], m.Handle())
	le.PutUint32(want[60:], 7)
	if got := m.Bytes()[64:128]; !bytes.Equal(got, want) {
		w.Errorf("in memory it is\n% x\nwant\n% x", got, want)
	}
	d.Prepare()
	if got := m.Bytes()[64 : 64+controlSize]; !bytes.Equal(got, make([]byte, controlSize)) {
		w.Errorf("an empty send is % x", got)
	}
	if n := bytes.Count(m.Bytes()[:64], []byte{0}) + bytes.Count(m.Bytes()[128:], []byte{0}); n != 4096-64 {
		w.Error("memory around the descriptor has changed")
	}
}

// testBuiltByHand sends and receives with descriptors that were written byte by byte.
func testBuiltByHand(w *World) {
	x, y := w.Connect(Setup{})
	le := binary.LittleEndian
	build := func(e *End, control uint16) *via.Descriptor {
		b := e.Memory.Bytes()[4096:][:64]
		clear(b)
		le.PutUint16(b[offsetSegCount:], 2)
		le.PutUint16(b[offsetControl:], control)
		le.PutUint32(b[offsetImmediate:], 77)
		le.PutUint32(b[offsetLength:], 90)
		for i, length := range []uint32{60, 30} {
			s := b[controlSize+16*i:]
			le.PutUint64(s, e.Memory.Address()+uint64(1000*i))
			le.PutUint32(s[8:], e.Memory.Handle())
			le.PutUint32(s[12:], length)
		}
		before := bytes.Clone(b)
		d := Must(e.Memory.DescriptorAt(4096))(w)
		if !bytes.Equal(b, before) {
			w.Errorf("% x became % x", before, b)
		}
		return d
	}
	pattern(x.Memory.Bytes()[:2000], 1)
	r, s := build(y, 0), build(x, 4)
	OK(w, y.VI.PostRecv(r))
	wantError(w, "posted already", y.VI.PostRecv(r), via.ErrInvalidParameter)
	OK(w, x.VI.PostSend(s))
	if d := w.MustTake(y.VI.RecvDone); d != r || d.Length() != 90 {
		w.Errorf("%d bytes with %p, want %p", d.Length(), d, r)
	}
	if v, ok := r.Immediate(); !ok || v != 77 {
		w.Errorf("immediate data %d, %v", v, ok)
	}
	w.MustTake(x.VI.SendDone)
	for _, at := range []int{0, 1000} {
		if n := 60 - 30*at/1000; !bytes.Equal(x.Memory.Bytes()[at:at+n], y.Memory.Bytes()[at:at+n]) {
			w.Errorf("%d bytes at %d differ", n, at)
		}
	}
	for _, offset := range []int{-64, 8, 32, y.Memory.Size(), 1 << 40} {
		_, err := y.Memory.DescriptorAt(offset)
		wantError(w, "no place for a descriptor", err, via.ErrInvalidParameter)
	}
}

// testCompleted: a completion changes length, immediate data and status, and no more.
func testCompleted(w *World) {
	x, y := w.Connect(Setup{})
	le := binary.LittleEndian
	m := Must(w.B.Alloc(Context(w), 4096, via.MemoryAttributes{}))(w)
	for i := range m.Bytes() {
		m.Bytes()[i] = 0xa5
	}
	d := Must(m.NewDescriptor(128, 1))(w)
	OK(w, m.AddTo(d, 1024, 100))
	before := bytes.Clone(m.Bytes())
	OK(w, y.VI.PostRecv(d))
	send := x.Prepare(w, x.Send[0], 0, 60)
	send.SetImmediate(0x01020304)
	pattern(x.Memory.Bytes()[:60], 1)
	OK(w, x.VI.PostSend(send))
	w.MustTake(y.VI.RecvDone)
	w.MustTake(x.VI.SendDone)

	control := before[128:]
	// Next and NextHandle are the provider's.
	copy(control[:offsetSegCount], m.Bytes()[128:])
	le.PutUint32(control[offsetImmediate:], 0x01020304)
	le.PutUint32(control[offsetLength:], 60)
	le.PutUint32(control[offsetStatus:], 0x90001) // done, receive, immediate data
	copy(before[1024:], x.Memory.Bytes()[:60])
	if got := m.Bytes(); !bytes.Equal(got, before) {
		for i := range got {
			if got[i] != before[i] {
				w.Errorf("byte %d is %#02x, want %#02x", i, got[i], before[i])
			}
		}
	}
	if s := send.Status(); s != 1 {
		w.Errorf("status of the send is %#x, want 0x1", uint32(s))
	}
}
