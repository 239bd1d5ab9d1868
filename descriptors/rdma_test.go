package descriptors_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/descriptors"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestRDMADescriptor: the address segment comes first and is counted, whenever it is set,
// and does not count in Length.
func TestRDMADescriptor(t *testing.T) {
	for _, late := range []bool{false, true} {
		d := must.Get(NewDescriptor(alignedBytes(DescriptorBytes(3), 0), testAddress, testHandle))(t)
		remote := func() {
			must.OK(t, d.SetRDMAWrite(0x1122334455667788, 0x99aabbcc))
		}
		if !late {
			remote()
		}
		for i := range uint32(2) {
			must.OK(t, d.AddData(0x1000+uint64(i), 7, 100+i))
		}
		if late {
			remote()
		}
		c := d.Control()
		if c.SegCount != 3 || c.Length != 201 || c.Control != OpRDMAWrite || len(d.Segments()) != 2 {
			t.Fatalf("late %v: %d segments, %d bytes, control %#x, data %v", late, c.SegCount, c.Length, c.Control, d.Segments())
		}
		if s := d.Segments()[1]; s.Address != 0x1001 || s.Length != 101 {
			t.Errorf("late %v: the second data segment is %+v", late, s)
		}
		c.Length = 0
		if d.Rearm(); c.Length != 201 {
			t.Errorf("late %v: rearmed with %d bytes", late, c.Length)
		}
		if err := d.SetRDMARead(1, 2); err != nil || c.SegCount != 3 || c.Control != OpRDMARead {
			t.Errorf("late %v: made a read: %v, %d segments, control %#x", late, err, c.SegCount, c.Control)
		}
		if d.SetFence(); c.Control != OpRDMARead|ControlQueueFence {
			t.Errorf("late %v: with a fence, control is %#x", late, c.Control)
		}
		if d.Prepare(); c.SegCount != 0 || c.Control != OpSend || len(d.Segments()) != 0 {
			t.Errorf("late %v: prepared with %d segments, control %#x", late, c.SegCount, c.Control)
		}
	}
}

// TestRDMADescriptorRoom: MaxSegments data segments fit behind the address segment, and
// what does not fit is refused and changes nothing.
func TestRDMADescriptorRoom(t *testing.T) {
	d := must.Get(NewDescriptor(alignedBytes(DescriptorBytes(MaxSegments+1), 0), testAddress, testHandle))(t)
	for range MaxSegments {
		must.OK(t, d.AddData(0, 7, 1))
	}
	if err := d.SetRDMAWrite(0, 1); err != nil || d.Control().SegCount != MaxSegments+1 {
		t.Errorf("%v, %d segments", err, d.Control().SegCount)
	}
	small := must.Get(NewDescriptor(alignedBytes(64, 0)[:48], testAddress, testHandle))(t)
	must.OK(t, small.AddData(0, 7, 5))
	if err := small.SetRDMARead(0, 1); !errors.Is(err, ErrTooManySegments) || small.Control().Control != OpSend || small.Control().SegCount != 1 {
		t.Errorf("no room for the address segment: %v, control %#x", err, small.Control().Control)
	}
	small.Prepare()
	must.OK(t, small.SetInline(3))
	should.Fail(t, small.SetRDMAWrite(0, 1), ErrTooManySegments, "inline data with RDMA")
}
