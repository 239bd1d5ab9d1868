package descriptors_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/descriptors"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

const (
	testAddress = 0x7f00_0000_1000
	testHandle  = 0xabcd0001
)

func TestNewDescriptorChecksItsMemory(t *testing.T) {
	for _, tt := range []struct {
		name    string
		mem     []byte
		address uint64
		want    error
	}{
		{"nil", nil, testAddress, ErrTooSmall},
		{"one byte short", alignedBytes(ControlSegmentSize-1, 0), testAddress, ErrTooSmall},
		{"memory misaligned", alignedBytes(64, 32), testAddress, ErrMisaligned},
		{"address misaligned", alignedBytes(64, 0), testAddress + 32, ErrMisaligned},
		{"fits", alignedBytes(ControlSegmentSize, 0), testAddress, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := NewDescriptor(tt.mem, tt.address, testHandle)
			if !errors.Is(err, tt.want) || (d == nil) == (err == nil) {
				t.Errorf("got %v, %v, want error %v", d, err, tt.want)
			}
		})
	}
}

func TestDescriptorBytes(t *testing.T) {
	for n, want := range map[int]int{0: 64, 1: 64, 2: 64, 3: 128, 6: 128, 7: 192, MaxSegments: 4096} {
		should.Be(t, DescriptorBytes(n), want, "%d segments take bytes", n)
	}
}

// TestDescriptorBytesAsTheDeviceSeesThem compares a finished descriptor with
// its bytes written out by hand.
func TestDescriptorBytesAsTheDeviceSeesThem(t *testing.T) {
	mem := alignedBytes(64, 0)
	for i := range mem {
		mem[i] = 0xee // what a descriptor used before may have left
	}
	d := must.Get(NewDescriptor(mem, testAddress, testHandle))(t)
	must.OK(t, d.AddData(0x1122334455667788, 0x99aabbcc, 0x1000))
	d.SetImmediate(0xdeadbeef)
	want := []byte{
		0, 0, 0, 0, 0, 0, 0, 0, // Next
		0, 0, 0, 0, // NextHandle
		1, 0, // SegCount
		4, 0, // Control: send with immediate data
		0, 0, 0, 0, // reserved
		0xef, 0xbe, 0xad, 0xde, // Immediate
		0, 0x10, 0, 0, // Length
		0, 0, 0, 0, // Status
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // Address
		0xcc, 0xbb, 0xaa, 0x99, // Handle
		0, 0x10, 0, 0, // Length
	}
	should.Be(t, cmp.Diff(want, mem[:len(want)]), "", "descriptor (-want +got)")
	if got := d.Token(); got.Address != testAddress || got.Handle != testHandle || got.Flags != 0 {
		t.Errorf("token is %+v", got)
	}
}

func TestAddDataStopsWhereTheMemoryEnds(t *testing.T) {
	for _, tt := range []struct{ bytes, room int }{
		{32, 0}, {47, 0}, {48, 1}, {64, 2}, {79, 2}, {128, 6},
		{ControlSegmentSize + DataSegmentSize*MaxSegments, MaxSegments},
		{ControlSegmentSize + DataSegmentSize*(MaxSegments+1), MaxSegments},
		{8192, MaxSegments},
	} {
		d := must.Get(NewDescriptor(alignedBytes(tt.bytes, 0), testAddress, testHandle))(t)
		for i := range tt.room {
			if err := d.AddData(uint64(i), 1, 1); err != nil {
				t.Fatalf("%d bytes: segment %d of %d: %v", tt.bytes, i+1, tt.room, err)
			}
		}
		should.Fail(t, d.AddData(1, 1, 1), ErrTooManySegments, "%d bytes: segment %d", tt.bytes, tt.room+1)
		if int(d.Length()) != tt.room || int(d.Control().SegCount) != tt.room || len(d.Segments()) != tt.room {
			t.Errorf("%d bytes: the refused segment left traces: length %d, count %d, %d segments",
				tt.bytes, d.Length(), d.Control().SegCount, len(d.Segments()))
		}
	}
}

func TestInlineData(t *testing.T) {
	d := must.Get(NewDescriptor(alignedBytes(128, 0), testAddress, testHandle))(t)
	should.Be(t, len(d.Inline()), 96, "room for bytes in 128")
	for _, n := range []int{-1, 97, math.MaxInt} {
		if err := d.SetInline(n); !errors.Is(err, ErrInlineRoom) || *d.Control() != (ControlSegment{}) {
			t.Errorf("%d bytes: %v, %+v", n, err, *d.Control())
		}
	}
	for n, units := range map[int]uint16{0: 0, 1: 1, 16: 1, 17: 2, 96: 6} {
		d.Prepare()
		must.OK(t, d.SetInline(n))
		want := ControlSegment{SegCount: units, Control: ControlInline, Length: uint32(n)}
		if *d.Control() != want || len(d.Segments()) != 0 {
			t.Errorf("%d bytes: %+v", n, *d.Control())
		}
		should.Fail(t, d.AddData(testAddress, testHandle, 1), ErrTooManySegments, "a segment beside inline data")
		d.Control().Length = 0
		d.Control().StoreStatus(StatusDone | StatusFlushed)
		if d.Rearm(); *d.Control() != want {
			t.Errorf("%d bytes, rearmed: %+v", n, *d.Control())
		}
	}
	d.Prepare()
	should.OK(t, d.AddData(testAddress, testHandle, 1))
}

func TestAddDataRefusesLengthsThatWrap(t *testing.T) {
	d := must.Get(NewDescriptor(alignedBytes(128, 0), testAddress, testHandle))(t)
	must.OK(t, d.AddData(0, 1, math.MaxUint32))
	should.Fail(t, d.AddData(0, 1, 1), ErrLengthOverflow)
	if d.Length() != math.MaxUint32 || len(d.Segments()) != 1 {
		t.Errorf("the refused segment left traces: length %d, %d segments", d.Length(), len(d.Segments()))
	}
	if err := d.AddData(0, 1, 0); err != nil {
		t.Errorf("an empty segment does not wrap: %v", err)
	}
}

func TestCompletionIsSeenThroughTheView(t *testing.T) {
	mem := alignedBytes(64, 0)
	d := must.Get(NewDescriptor(mem, testAddress, testHandle))(t)
	must.OK(t, d.AddData(0x1000, 1, 4096))
	if d.Status().Done() {
		t.Fatal("a new descriptor is done")
	}
	device := ControlAt(mem)
	device.Length, device.Immediate = 17, 0x55
	device.StoreStatus(StatusDone | StatusOpReceive | StatusImmediate)
	if !d.Status().Done() || d.Status().Failed() || d.Length() != 17 {
		t.Errorf("status %v, length %d", d.Status(), d.Length())
	}
	if v, ok := d.Immediate(); !ok || v != 0x55 {
		t.Errorf("immediate data %#x, %v", v, ok)
	}

	d.Rearm()
	if d.Status() != 0 || d.Length() != 4096 || len(d.Segments()) != 1 {
		t.Errorf("rearmed: status %v, length %d, %d segments", d.Status(), d.Length(), len(d.Segments()))
	}
	if _, ok := d.Immediate(); ok {
		t.Error("immediate data of the last message is still valid")
	}
	d.Prepare()
	if d.Length() != 0 || len(d.Segments()) != 0 || d.Control().SegCount != 0 {
		t.Errorf("prepared: length %d, %d segments", d.Length(), len(d.Segments()))
	}
}

// TestDescriptorModel drives a view with random calls and compares the memory
// with a plain model after each.
func TestDescriptorModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type segment struct {
			Address        uint64
			Handle, Length uint32
		}
		room := rapid.IntRange(0, 8).Draw(t, "room")
		mem := alignedBytes(ControlSegmentSize+room*DataSegmentSize, 0)
		d := must.Get(NewDescriptor(mem, testAddress, testHandle))(t)
		var model []segment
		total := func() (n uint64) {
			for _, s := range model {
				n += uint64(s.Length)
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				s := segment{rapid.Uint64().Draw(t, "address"), rapid.Uint32().Draw(t, "handle"), rapid.Uint32().Draw(t, "length")}
				var want error
				switch {
				case len(model) == room:
					want = ErrTooManySegments
				case total()+uint64(s.Length) > math.MaxUint32:
					want = ErrLengthOverflow
				default:
					model = append(model, s)
				}
				if err := d.AddData(s.Address, s.Handle, s.Length); !errors.Is(err, want) {
					t.Fatalf("got %v, want %v", err, want)
				}
			},
			"prepare": func(*rapid.T) { d.Prepare(); model = nil },
			"complete and rearm": func(t *rapid.T) {
				c := ControlAt(mem)
				c.Length = rapid.Uint32().Draw(t, "moved")
				c.StoreStatus(StatusDone)
				d.Rearm()
			},
			"": func(t *rapid.T) {
				c := ControlAt(mem)
				if uint64(c.Length) != total() || int(c.SegCount) != len(model) || c.LoadStatus() != 0 {
					t.Fatalf("control segment %+v, want %d segments of %d bytes", c, len(model), total())
				}
				for i, s := range DataSegmentsAt(mem[ControlSegmentSize:])[:len(model)] {
					must.Be(t, segment{s.Address, s.Handle, s.Length}, model[i], "segment %d", i)
				}
			},
		})
	})
}
