package cells_test

import (
	"errors"
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/cells"
)

// TestHEC: the check value of the code, and the cells whose headers I.432.1, 4.3.2 and
// I.361 state: unassigned and idle ones.
func TestHEC(t *testing.T) {
	should.Be(t, cells.HEC([]byte("123456789")), 0xa1)
	for word, want := range map[uint32]byte{0: 0x55, 1: 0x52} {
		var b [cells.HeaderSize]byte
		cells.HeaderOf(word).Put(&b)
		should.Be(t, b[4], want, "%08x", word)
	}
}

// TestHeader: each field has its bits, and what is put is read again.
func TestHeader(t *testing.T) {
	for want, h := range map[uint32]cells.Header{
		0xf0000000: {GFC: cells.MaxGFC}, 0x0ff00000: {VPI: 0xff}, 0x000ffff0: {VCI: 0xffff}, 0x0000000e: {PTI: cells.MaxPTI}, 0x00000001: {CLP: true},
		0x123456b3: {GFC: 1, VPI: 0x23, VCI: 0x456b, PTI: cells.PTILast, CLP: true},
	} {
		should.Be(t, h.Word(), want, "%+v", h)
	}
	if h := (cells.Header{GFC: cells.MaxGFC + 1, PTI: cells.MaxPTI + 1}); h.Word() != 0 {
		t.Errorf("fields without room run over into %08x", h.Word())
	}
	rapid.Check(t, func(r *rapid.T) {
		h := cells.HeaderOf(rapid.Uint32().Draw(r, "word"))
		var b [cells.HeaderSize]byte
		h.Put(&b)
		must.Give(cells.ParseHeader(&b))(r, h)
		// The code's distance is four: up to three wrong bits are always seen.
		at := rapid.SliceOfNDistinct(rapid.IntRange(0, 8*cells.HeaderSize-1), 1, 3, rapid.ID[int]).Draw(r, "bits")
		for _, i := range at {
			b[i/8] ^= 1 << (i % 8)
		}
		if _, err := cells.ParseHeader(&b); !errors.Is(err, cells.ErrHEC) {
			r.Fatalf("bits %v: %v", at, err)
		}
	})
}

// TestPayloadTypes: only cells with users' data end a PDU.
func TestPayloadTypes(t *testing.T) {
	for pti := range uint8(cells.MaxPTI + 1) {
		h := cells.Header{PTI: pti}
		user := pti < 4
		if h.User() != user || h.Last() != (user && bits.OnesCount8(pti&1) == 1) {
			t.Errorf("PTI %d: user %v, last %v", pti, h.User(), h.Last())
		}
	}
}
