package datasheet_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// overlay is one of the package's overlay functions, reduced to where the
// layout starts and how many elements it has.
type overlay struct {
	name  string
	size  int
	align int
	lay   func(b []byte) (at uintptr, n int)
}

func single[T any](f func([]byte) *T) func([]byte) (uintptr, int) {
	return func(b []byte) (uintptr, int) {
		p := f(b)
		if p == nil {
			return 0, 0
		}
		return addressOfValue(p), 1
	}
}

func several[T any](f func([]byte) []T) func([]byte) (uintptr, int) {
	return func(b []byte) (uintptr, int) {
		s := f(b)
		if len(s) == 0 {
			return 0, 0
		}
		return addressOfValue(&s[0]), len(s)
	}
}

var singleOverlays = []overlay{
	{"ControlAt", ControlSegmentSize, DescriptorAlign, single(ControlAt)},
	{"AddressSegmentAt", AddressSegmentSize, 8, single(AddressSegmentAt)},
	{"DataSegmentAt", DataSegmentSize, 8, single(DataSegmentAt)},
	{"HeaderAt", HeaderSize, 4, single(HeaderAt)},
	{"ConnectBodyAt", ConnectBodySize, 4, single(ConnectBodyAt)},
	{"ChannelControlAt", 64, 64, single(ChannelControlAt)},
	{"ExtensionAt", ExtensionSize, 8, single(ExtensionAt)},
	{"CommandAt", AdminEntrySize, 8, single(CommandAt)},
	{"AdminEntryAt", AdminEntrySize, 8, single(AdminEntryAt)},
	{"ProgressAt", ProgressSize, ProgressSize, single(ProgressAt)},
	{"IndexAt", 4, 4, single(IndexAt)},
}

var ringOverlays = []overlay{
	{"DataSegmentsAt", DataSegmentSize, 8, several(DataSegmentsAt)},
	{"TokensAt", TokenSize, TokenSize, several(TokensAt)},
	{"CompletionsAt", CompletionSize, CompletionSize, several(CompletionsAt)},
	{"RingSlotsAt", RingSlotSize, DescriptorAlign, several(RingSlotsAt)},
	{"RingPlacesAt", RingPlaceSize, 8, several(RingPlacesAt)},
	{"CellsAt", CellSize, 8, several(CellsAt)},
	{"ReferencesAt", ReferenceSize, 8, several(ReferencesAt)},
	{"DMARecordsAt", DMARecordSize, DMARecordSize, several(DMARecordsAt)},
}

func TestOverlaysCheckLengthAndAlignment(t *testing.T) {
	for _, o := range append(append([]overlay(nil), singleOverlays...), ringOverlays...) {
		t.Run(o.name, func(t *testing.T) {
			for _, n := range []int{0, 1, o.size - 1} {
				if _, got := o.lay(alignedBytes(n, 0)); got != 0 {
					t.Errorf("%d bytes are too few and yet were taken", n)
				}
			}
			for skew := range 64 {
				b := alignedBytes(o.size, skew)
				at, n := o.lay(b)
				switch fits := skew%o.align == 0; {
				case fits && (n != 1 || at != addressOf(b)):
					t.Errorf("skew %d: got %d elements at %#x, want 1 at %#x", skew, n, at, addressOf(b))
				case !fits && n != 0:
					t.Errorf("skew %d is not a multiple of %d and yet was taken", skew, o.align)
				}
			}
			if _, n := o.lay(nil); n != 0 {
				t.Error("nil was taken")
			}
		})
	}
}

func TestSliceOverlaysHoldWholeElementsOnly(t *testing.T) {
	for _, o := range ringOverlays {
		for _, n := range []int{o.size, 2*o.size - 1, 2 * o.size, 17*o.size + 3} {
			if _, got := o.lay(alignedBytes(n, 0)); got != n/o.size {
				t.Errorf("%s: %d bytes hold %d elements, want %d", o.name, n, got, n/o.size)
			}
		}
	}
}

// TestLayoutsAreLittleEndian writes fields through overlays and looks at the
// bytes that the other party sees.
func TestLayoutsAreLittleEndian(t *testing.T) {
	b := alignedBytes(AdminEntrySize, 0)
	c := ControlAt(b)
	c.Next, c.SegCount, c.Length = 0x0102030405060708, 0x0a0b, 0x11121314
	c.StoreStatus(StatusDone | StatusImmediate)
	for at, want := range map[int][]byte{
		0:  {8, 7, 6, 5, 4, 3, 2, 1},
		12: {0x0b, 0x0a},
		24: {0x14, 0x13, 0x12, 0x11},
		28: {0x01, 0x00, 0x08, 0x00},
	} {
		should.Be(t, string(b[at:at+len(want)]), string(want), "bytes at %d are, want % x", at, want)
	}

	clear(b)
	cmd := CommandAt(b)
	cmd.Opcode = OpConnectRequest
	body := Body[ConnectRequestBody](cmd)
	body.Endpoint, body.RemoteMAC = 7, MAC{2, 0, 0, 0, 0, 9}
	if b[0] != byte(OpConnectRequest) || b[8] != 7 || b[16] != 2 || b[21] != 9 {
		t.Errorf("command is % x", b[:24])
	}

	clear(b)
	e := AdminEntryAt(b)
	Reply[Event](e).Descriptor = 0x77
	e.Publish(CompletionPhase)
	if b[24] != 0x77 || b[124] != 1 || e.LoadFlags() != CompletionPhase {
		t.Errorf("event is % x", b)
	}
}
