package descriptors_test

import (
	"errors"
	"testing"

	. "github.com/trapeze-nic/trapeze/descriptors"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestRDMADescriptor: the address segment comes first and is counted, whenever it is set,
// and does not count in Length.
func TestRDMADescriptor(t *testing.T) {
	for _, late := range []bool{false, true} {
		d, err := NewDescriptor(alignedBytes(DescriptorBytes(3), 0), testAddress, testHandle)
		if err != nil {
			t.Fatal(err)
		}
		remote := func() {
			if err := d.SetRDMAWrite(0x1122334455667788, 0x99aabbcc); err != nil {
				t.Fatal(err)
			}
		}
		if !late {
			remote()
		}
		for i := range uint32(2) {
			if err := d.AddData(0x1000+uint64(i), 7, 100+i); err != nil {
				t.Fatal(err)
			}
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
	d, err := NewDescriptor(alignedBytes(DescriptorBytes(MaxSegments+1), 0), testAddress, testHandle)
	if err != nil {
		t.Fatal(err)
	}
	for range MaxSegments {
		if err := d.AddData(0, 7, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.SetRDMAWrite(0, 1); err != nil || d.Control().SegCount != MaxSegments+1 {
		t.Errorf("%v, %d segments", err, d.Control().SegCount)
	}
	small, err := NewDescriptor(alignedBytes(64, 0)[:48], testAddress, testHandle)
	if err != nil {
		t.Fatal(err)
	}
	if err := small.AddData(0, 7, 5); err != nil {
		t.Fatal(err)
	}
	if err := small.SetRDMARead(0, 1); !errors.Is(err, ErrTooManySegments) || small.Control().Control != OpSend || small.Control().SegCount != 1 {
		t.Errorf("no room for the address segment: %v, control %#x", err, small.Control().Control)
	}
	small.Prepare()
	if err := small.SetInline(3); err != nil {
		t.Fatal(err)
	}
	if err := small.SetRDMAWrite(0, 1); !errors.Is(err, ErrTooManySegments) {
		t.Errorf("inline data with RDMA: %v", err)
	}
}
