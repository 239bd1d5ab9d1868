package descriptors_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// TestMarks: what SetMarks sets, TakeMarks takes, once, and at the offsets that
// MarkOffsets says; a BAR that is too small does no harm.
func TestMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bar := alignedBar(rapid.IntRange(0, descriptors.PageSize).Draw(t, "size") &^ 3)
		page := rapid.Uint64().Draw(t, "page")
		descriptors.SetMarks(bar, page)
		mark, group := descriptors.MarkOffsets(page)
		if mark < descriptors.MarkBase || mark >= descriptors.PageSize || group < descriptors.MarkGroups || group >= descriptors.MarksOn {
			t.Fatalf("page %d: mark %#x, group %#x", page, mark, group)
		}
		for _, at := range []uint64{mark, group} {
			var want uint32
			if at < uint64(len(bar)) {
				want = 1 << (8 * (at % 4))
			}
			if got := descriptors.TakeMarks(bar, at&^3); got != want {
				t.Fatalf("%#x holds %#x, want %#x", at, got, want)
			}
			if got := descriptors.TakeMarks(bar, at&^3); got != 0 {
				t.Fatalf("%#x holds %#x after it was taken", at, got)
			}
		}
	})
}

// alignedBar is n bytes that start on a multiple of 4.
func alignedBar(n int) []byte { return make([]byte, n+64)[:n] }
