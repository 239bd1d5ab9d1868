package datasheet_test

import (
	"math"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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

func TestReadReferences(t *testing.T) {
	many := make([]Reference, MaxReferences+1)
	for i := range many {
		many[i] = ref(1, 10, 0)
	}
	for _, tt := range []struct {
		name   string
		table  []byte
		length uint16
		want   int
	}{
		{"one", tableOf(ref(1, 4096, 100)), 4096, 1},
		{"two, of one place", tableOf(ref(1, 7, 100), ref(1, 9, 100)), 16, 2},
		{"as many as can be", tableOf(many[:MaxReferences]...), 10 * MaxReferences, MaxReferences},
		{"at the end of all memory", tableOf(ref(math.MaxUint32, 1, math.MaxUint64-1)), 1, 1},
		{"as long as can be", tableOf(ref(1, MaxReferred, 0)), MaxReferred, 1},
		{"none", nil, 0, 0},
		{"too many", tableOf(many...), 10 * (MaxReferences + 1), 0},
		{"a part of one", tableOf(ref(1, 8, 0))[:ReferenceSize-1], 8, 0},
		{"one and a part", tableOf(ref(1, 8, 0), ref(1, 8, 0))[:ReferenceSize+8], 8, 0},
		{"more than a frame stands for", tableOf(ref(1, MaxReferred+1, 0)), MaxReferred + 1, 0},
		{"region 0", tableOf(ref(0, 8, 0)), 8, 0},
		{"empty", tableOf(ref(1, 0, 0)), 0, 0},
		{"one of two is empty", tableOf(ref(1, 8, 0), ref(1, 0, 0)), 8, 0},
		{"wraps", tableOf(ref(1, 8, math.MaxUint64-7)), 8, 0},
		{"short of the header's length", tableOf(ref(1, 7, 0)), 8, 0},
		{"beyond the header's length", tableOf(ref(1, 9, 0)), 8, 0},
		{"right modulo 2^16", tableOf(ref(1, 1<<16+8, 0)), 8, 0},
		{"right modulo 2^32", tableOf(ref(1, math.MaxUint32, 0), ref(1, 9, 0)), 8, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var into [MaxReferences]Reference
			n := ReadReferences(tt.table, tt.length, &into)
			must.Be(t, n, tt.want, "references")
			should.Same(t, tableOf(into[:n]...), tt.table[:n*ReferenceSize], "they are not those of the table")
		})
	}
}

// FuzzReferences reads whatever follows a header: what is taken keeps the rules,
// and what breaks none of them is taken.
func FuzzReferences(f *testing.F) {
	f.Add([]byte(tableOf(ref(1, 4096, 100))), uint16(4096))
	f.Add([]byte(tableOf(ref(3, 1000, 0x2000), ref(5, 3096, 0x40))), uint16(4096))
	f.Add([]byte(tableOf(ref(0, 8, 0))), uint16(8))
	f.Add([]byte(tableOf(ref(1, 8, math.MaxUint64-7))), uint16(8))
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
		if good = good && total == uint64(length); good != (n > 0) {
			t.Fatalf("%d references taken, good: %v", n, good)
		}
		if n > 0 && n != len(data)/ReferenceSize {
			t.Fatalf("%d references of %d bytes", n, len(data))
		}
		must.Same(t, table, data, "reading changed the table")
	})
}
