package datasheet_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

func TestDoorbellPages(t *testing.T) {
	should.Be(t, EndpointPage(3), 0x3000, "endpoint 3 has page")
	should.Be(t, CQPage(1024, 2), (1024+2)*4096, "completion queue 2 has page")
	// With 2^20 of each the offsets no longer fit 32 bits.
	should.Be(t, CQPage(1<<20, 1<<20-1), (1<<21-1)<<12, "last page")
}

// TestArmReached checks the comparison for all distances that queues can have, wherever the counts stand.
func TestArmReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		near := rapid.SampledFrom([]uint32{0, 1 << 31, rapid.Uint32().Draw(t, "anywhere")}).Draw(t, "near")
		taken := near + uint32(rapid.Int32Range(-2, 2).Draw(t, "beside"))
		ahead := rapid.OneOf(rapid.Int32Range(-2, 2), rapid.Int32Range(-1<<MaxCQLog2, 1<<MaxCQLog2)).Draw(t, "ahead")
		must.Be(t, ArmWord(taken)&ArmFlag, ArmFlag, "the flag for %#x", taken)
		must.Be(t, ArmReached(ArmWord(taken), taken+uint32(ahead)), ahead > 0, "%d completions to be taken", ahead)
	})
}

// TestMarks: what SetMarks sets, TakeMarks takes, once, and at the offsets that
// MarkOffsets says; a BAR that is too small does no harm.
func TestMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bar := alignedBar(rapid.IntRange(0, PageSize).Draw(t, "size") &^ 3)
		page := rapid.Uint64().Draw(t, "page")
		SetMarks(bar, page)
		mark, group := MarkOffsets(page)
		if mark < MarkBase || mark >= PageSize || group < MarkGroups || group >= MarkGroups+MarkCount/MarksPerGroup {
			t.Fatalf("page %d: mark %#x, group %#x", page, mark, group)
		}
		for _, at := range []uint64{mark, group} {
			var want uint32
			if at < uint64(len(bar)) {
				want = 1 << (8 * (at % 4))
			}
			must.Be(t, TakeMarks(bar, at&^3), want, "%#x holds", at)
			must.Be(t, TakeMarks(bar, at&^3), 0, "%#x holds after it was taken", at)
		}
	})
}

// alignedBar is n bytes that start on a multiple of 4.
func alignedBar(n int) []byte { return make([]byte, n+64)[:n] }
