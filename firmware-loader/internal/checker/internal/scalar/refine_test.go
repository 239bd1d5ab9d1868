package scalar_test

import (
	"math"
	"testing"

	"github.com/cilium/ebpf/asm"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/concrete"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker/internal/scalar"
)

// drawSmall returns a number that has few values, at the bottom, at the top, around the
// middle, or around the top of 32 bits, and those values.
func drawSmall(t *rapid.T) (n scalar.Number, values []uint64) {
	const c = math.MaxUint64
	start := rapid.SampledFrom([]uint64{0, 1, c - 12, 1<<63 - 6, 1<<31 - 6, 1<<32 - 6, c - 1<<31 - 6}).Draw(t, "start")
	n = scalar.Unknown()
	switch rapid.IntRange(0, 2).Draw(t, "shape") {
	case 0: // bits
		mask := rapid.Uint64Range(0, 31).Draw(t, "mask")
		n = scalar.Compute(asm.Or, scalar.Compute(asm.And, n, scalar.Const(mask)), scalar.Const(start&^31))
		for v := range uint64(32) {
			if v&^mask == 0 {
				values = append(values, v|start&^31)
			}
		}
		return n, values
	case 1: // signed bounds
		size := rapid.Uint64Range(0, 12).Draw(t, "size")
		n, _ = scalar.Refine(asm.JSGE, n, scalar.Const(start), false, true)
		n, _ = scalar.Refine(asm.JSLE, n, scalar.Const(start+size), false, true)
		for v := start; int64(start) <= int64(start+size) && v != start+size+1; v++ {
			values = append(values, v)
		}
	case 2: // unsigned bounds
		size := min(rapid.Uint64Range(0, 12).Draw(t, "size"), c-start)
		n, _ = scalar.Refine(asm.JGE, n, scalar.Const(start), false, true)
		n, _ = scalar.Refine(asm.JLE, n, scalar.Const(start+size), false, true)
		for v := start; v != start+size+1; v++ {
			values = append(values, v)
		}
	}
	return n, values
}

// Of two numbers with few values, each pair for which a comparison holds stays in what
// is learned of both, and so does each pair for which it does not.
func TestRefineKeepsAllPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, as := drawSmall(t)
		b, bs := drawSmall(t)
		narrow := rapid.Bool().Draw(t, "narrow")
		for _, op := range comparisons {
			var ra, rb [2]scalar.Number
			for i, holds := range []bool{false, true} {
				ra[i], rb[i] = scalar.Refine(op, a, b, narrow, holds)
			}
			for _, x := range as {
				for _, y := range bs {
					i := 0
					if concrete.Holds(op, x, y, narrow) {
						i = 1
					}
					if !ra[i].Contains(x) || !rb[i].Contains(y) {
						t.Fatalf("%v %v, narrow %v: %#x, %#x were in %+v, %+v and are not in %+v, %+v",
							op, i, narrow, x, y, a, b, ra[i], rb[i])
					}
				}
			}
		}
	})
}

// A comparison of two numbers with bounds says something of each.
func TestRefineBothSides(t *testing.T) {
	between := func(lowest, highest uint64) scalar.Number {
		n, _ := scalar.Refine(asm.JGE, scalar.Unknown(), scalar.Const(lowest), false, true)
		n, _ = scalar.Refine(asm.JLE, n, scalar.Const(highest), false, true)
		return n
	}
	type bounds [2]uint64
	for _, tt := range []struct {
		name         string
		op           asm.JumpOp
		holds        bool
		a, b         bounds
		wantA, wantB bounds
	}{
		{"equal", asm.JEq, true, bounds{0, 40}, bounds{30, 100}, bounds{30, 40}, bounds{30, 40}},
		{"not unequal", asm.JNE, false, bounds{0, 40}, bounds{30, 100}, bounds{30, 40}, bounds{30, 40}},
		{"unequal to a constant", asm.JNE, true, bounds{0, 40}, bounds{40, 40}, bounds{0, 39}, bounds{40, 40}},
		{"constant unequal to", asm.JNE, true, bounds{3, 3}, bounds{3, 9}, bounds{3, 3}, bounds{4, 9}},
		{"above", asm.JGT, true, bounds{0, 40}, bounds{30, 100}, bounds{31, 40}, bounds{30, 39}},
		{"not above", asm.JGT, false, bounds{0, 200}, bounds{30, 100}, bounds{0, 100}, bounds{30, 100}},
		{"not above, other side", asm.JGT, false, bounds{50, 200}, bounds{30, 100}, bounds{50, 100}, bounds{50, 100}},
		{"at least", asm.JGE, true, bounds{0, 40}, bounds{30, 100}, bounds{30, 40}, bounds{30, 40}},
		{"not at least", asm.JGE, false, bounds{35, 140}, bounds{30, 100}, bounds{35, 99}, bounds{36, 100}},
		{"below", asm.JLT, true, bounds{35, 140}, bounds{30, 100}, bounds{35, 99}, bounds{36, 100}},
		{"at most", asm.JLE, true, bounds{35, 140}, bounds{30, 100}, bounds{35, 100}, bounds{35, 100}},
		{"signed above", asm.JSGT, true, bounds{0, 40}, bounds{30, 100}, bounds{31, 40}, bounds{30, 39}},
		{"signed below", asm.JSLT, true, bounds{35, 140}, bounds{30, 100}, bounds{35, 99}, bounds{36, 100}},
		{"not signed below", asm.JSLT, false, bounds{0, 40}, bounds{30, 100}, bounds{30, 40}, bounds{30, 40}},
		{"signed at most", asm.JSLE, true, bounds{35, 140}, bounds{30, 100}, bounds{35, 100}, bounds{35, 100}},
		{"bit of a register", asm.JSet, true, bounds{0, 15}, bounds{8, 8}, bounds{8, 15}, bounds{8, 8}},
		{"bit of a constant", asm.JSet, true, bounds{8, 8}, bounds{0, 15}, bounds{8, 8}, bounds{8, 15}},
		{"no bit of a register", asm.JSet, false, bounds{0, 15}, bounds{8, 8}, bounds{0, 7}, bounds{8, 8}},
		{"no bit of a constant", asm.JSet, false, bounds{8, 8}, bounds{0, 15}, bounds{8, 8}, bounds{0, 7}},
		{"no bits in common", asm.JSet, false, bounds{0, 15}, bounds{0, 15}, bounds{0, 15}, bounds{0, 15}},
	} {
		for _, narrow := range []bool{false, true} {
			a, b := scalar.Refine(tt.op, between(tt.a[0], tt.a[1]), between(tt.b[0], tt.b[1]), narrow, tt.holds)
			gotA, gotB := bounds{a.UMin(), a.UMax()}, bounds{b.UMin(), b.UMax()}
			should.Hold(t, gotA == tt.wantA && gotB == tt.wantB,
				"%s, narrow %v: %d and %d, want %d and %d", tt.name, narrow, gotA, gotB, tt.wantA, tt.wantB)
		}
	}
}
