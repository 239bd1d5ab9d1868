package datasheet_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestMarks: what SetMarks sets, TakeMarks takes, once, and at the offsets that
// MarkOffsets says; a BAR that is too small does no harm.
func TestMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bar := alignedBar(rapid.IntRange(0, datasheet.PageSize).Draw(t, "size") &^ 3)
		page := rapid.Uint64().Draw(t, "page")
		datasheet.SetMarks(bar, page)
		mark, group := datasheet.MarkOffsets(page)
		if mark < datasheet.MarkBase || mark >= datasheet.PageSize || group < datasheet.MarkGroups || group >= datasheet.MarkGroups+datasheet.MarkCount/datasheet.MarksPerGroup {
			t.Fatalf("page %d: mark %#x, group %#x", page, mark, group)
		}
		for _, at := range []uint64{mark, group} {
			var want uint32
			if at < uint64(len(bar)) {
				want = 1 << (8 * (at % 4))
			}
			if got := datasheet.TakeMarks(bar, at&^3); got != want {
				t.Fatalf("%#x holds %#x, want %#x", at, got, want)
			}
			if got := datasheet.TakeMarks(bar, at&^3); got != 0 {
				t.Fatalf("%#x holds %#x after it was taken", at, got)
			}
		}
	})
}

// alignedBar is n bytes that start on a multiple of 4.
func alignedBar(n int) []byte { return make([]byte, n+64)[:n] }
