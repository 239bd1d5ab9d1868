package datasheet_test

import (
	"reflect"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestRingSlotIsADescriptor: behind the message a slot has the form of a control segment and
// a data segment.
func TestRingSlotIsADescriptor(t *testing.T) {
	slot, control := reflect.TypeFor[RingSlot](), reflect.TypeFor[ControlSegment]()
	for of, as := range map[string]string{"Segments": "SegCount", "Control": "Control", "Reserved": "Front",
		"Tag": "Immediate", "Length": "Length", "Status": "Status"} {
		s, _ := slot.FieldByName(of)
		c, _ := control.FieldByName(as)
		if s.Offset != RingMessage+c.Offset || s.Type.Size() != c.Type.Size() {
			t.Errorf("%s is %d bytes at %d, %s %d at %d", of, s.Type.Size(), s.Offset, as, c.Type.Size(), c.Offset)
		}
	}
	if s, _ := slot.FieldByName("Payload"); s.Offset != RingMessage+ControlSegmentSize {
		t.Errorf("Payload is at %d", s.Offset)
	}
	s := &RingSlotsAt(alignedBytes(2*RingSlotSize, 0))[1]
	d := s.Descriptor()
	d.Immediate, d.Length, d.SegCount = 1, 2, 3
	if d.StoreStatus(StatusDone); s.Tag != 1 || s.Length != 2 || s.Segments != 3 || s.LoadStatus() != StatusDone {
		t.Errorf("%+v", *s)
	}
	if s.StoreStatus(0); d.LoadStatus() != 0 {
		t.Errorf("status %v", d.LoadStatus())
	}
}

func TestRingPlace(t *testing.T) {
	at := &RingPlacesAt(alignedBytes(RingPlaceSize, 0))[0]
	var got RingPlace
	if at.Load(&got) {
		t.Error("an entry that names nothing was found")
	}
	want := RingPlace{Address: 1 << 40, Handle: 7, Length: 100, Tag: 0xabcdef01}
	at.Store(&want)
	if !at.Load(&got) || got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if at.Store(&RingPlace{}); at.Load(&got) {
		t.Error("an entry that was emptied was found")
	}
}

// TestRingPlaceWhileItChanges: whoever reads an entry while another is stored there never
// takes the tag of one for the memory of the other.
func TestRingPlaceWhileItChanges(t *testing.T) {
	at := &RingPlacesAt(alignedBytes(RingPlaceSize, 0))[0]
	entry := func(n uint32) RingPlace {
		return RingPlace{Address: uint64(n) << 20, Handle: n%3/2 + 1, Length: n, Tag: n}
	}
	const last = 20_000
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := uint32(1); n <= last; n++ {
			e := entry(n)
			at.Store(&e)
		}
	}()
	for {
		var got RingPlace
		if at.Load(&got) {
			must.Be(t, got, entry(got.Tag), "has the tag")
			if got.Tag == last {
				break
			}
		}
	}
	<-done
}
