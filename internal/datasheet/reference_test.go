package datasheet_test

import (
	"math"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// tableOf encodes references behind each other.
func tableOf(references ...Reference) []byte {
	b := alignedBytes(len(references)*ReferenceSize, 0)
	copy(ReferencesAt(b), references)
	return b
}

func ref(region, length uint32, offset uint64) Reference {
	return Reference{Region: region, Length: length, Offset: offset}
}

// FuzzReferences reads whatever follows a header: what is taken keeps the rules,
// and what breaks none of them is taken.
func FuzzReferences(f *testing.F) {
	many := make([]Reference, MaxReferences+1)
	for i := range many {
		many[i] = ref(1, 10, 0)
	}
	for _, seed := range []struct {
		table  []byte
		length uint16
	}{
		{tableOf(ref(1, 4096, 100)), 4096}, {tableOf(ref(3, 1000, 0x2000), ref(5, 3096, 0x40)), 4096},
		{tableOf(ref(1, 7, 100), ref(1, 9, 100)), 16}, // of one place
		{tableOf(many[:MaxReferences]...), 10 * MaxReferences},
		{tableOf(many...), 10 * (MaxReferences + 1)}, // one too many
		{tableOf(ref(math.MaxUint32, 1, math.MaxUint64-1)), 1},
		{tableOf(ref(1, MaxReferred, 0)), MaxReferred}, {tableOf(ref(1, MaxReferred+1, 0)), MaxReferred + 1},
		{nil, 0},
		{tableOf(ref(1, 8, 0))[:ReferenceSize-1], 8}, {tableOf(ref(1, 8, 0), ref(1, 8, 0))[:ReferenceSize+8], 8}, // a part of one
		{tableOf(ref(0, 8, 0)), 8}, {tableOf(ref(1, 0, 0)), 0}, {tableOf(ref(1, 8, 0), ref(1, 0, 0)), 8},
		{tableOf(ref(1, 8, math.MaxUint64-7)), 8},              // wraps
		{tableOf(ref(1, 7, 0)), 8}, {tableOf(ref(1, 9, 0)), 8}, // not the header's length
		{tableOf(ref(1, 1<<16+8, 0)), 8}, {tableOf(ref(1, math.MaxUint32, 0), ref(1, 9, 0)), 8}, // nor modulo 2^16 or 2^32
	} {
		f.Add(seed.table, seed.length)
	}
	f.Fuzz(func(t *testing.T, data []byte, length uint16) {
		table := alignedBytes(len(data), 0)
		copy(table, data)
		var into [MaxReferences]Reference
		n := ReadReferences(table, length, &into)
		good := len(data)%ReferenceSize == 0 && len(data) > 0 && len(data) <= MaxReferences*ReferenceSize && length <= MaxReferred
		var total uint64
		for _, r := range ReferencesAt(table) {
			good = good && r.Region != 0 && r.Length != 0 && r.Offset+uint64(r.Length) > r.Offset
			total += uint64(r.Length)
		}
		want := 0
		if good && total == uint64(length) {
			want = len(data) / ReferenceSize
		}
		must.Be(t, n, want, "references")
		must.Same(t, tableOf(into[:n]...), data[:n*ReferenceSize], "they are not those of the table")
		must.Same(t, table, data, "reading changed the table")
	})
}
