package scalar_test

import (
	"math"
	"math/bits"
	"testing"

	"github.com/cilium/ebpf/asm"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/concrete"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker/internal/scalar"
)

var edges = []uint64{
	0, 1, 2, 7, 8, 31, 32, 63, 64, 127, 128, 255, 256, math.MaxInt32, 1 << 31, math.MaxUint32, 1 << 32,
	math.MaxInt64, 1 << 63, math.MaxUint64, math.MaxUint64 - 1, math.MaxUint64 - math.MaxInt32,
}

func drawValue(t *rapid.T) uint64 {
	v := rapid.OneOf(
		rapid.SampledFrom(edges), rapid.Uint64Range(0, 300), rapid.Uint64(),
		rapid.Map(rapid.Uint32(), func(v uint32) uint64 { return uint64(v) }),
	).Draw(t, "value")
	if rapid.Bool().Draw(t, "negative") {
		return -v
	}
	return v
}

var comparisons = []asm.JumpOp{
	asm.JEq, asm.JNE, asm.JGT, asm.JGE, asm.JLT, asm.JLE,
	asm.JSGT, asm.JSGE, asm.JSLT, asm.JSLE, asm.JSet,
}

// drawNumber returns something true of v, narrowed by comparisons that hold.
func drawNumber(t *rapid.T, v uint64) scalar.Number {
	n := scalar.Unknown()
	switch rapid.IntRange(0, 9).Draw(t, "start") {
	case 0:
		return scalar.Const(v)
	case 1:
		if v <= math.MaxUint32 {
			n = scalar.Unsigned(4)
		}
	case 2:
		if int64(v) >= math.MinInt16 && int64(v) <= math.MaxInt16 {
			n = scalar.Signed(2)
		}
	}
	for range rapid.IntRange(0, 4).Draw(t, "facts") {
		op := rapid.SampledFrom(comparisons).Draw(t, "fact")
		narrow := rapid.Bool().Draw(t, "narrow")
		c := drawValue(t)
		n, _ = scalar.Refine(op, n, scalar.Const(c), narrow, concrete.Holds(op, v, c, narrow))
	}
	must.Hold(t, n.Contains(v), "facts about %#x exclude it: %v", v, n)
	return n
}

var operations = []asm.ALUOp{
	asm.Add, asm.Sub, asm.Mul, asm.Div, asm.SDiv, asm.Mod, asm.SMod, asm.And, asm.Or, asm.Xor,
	asm.LSh, asm.RSh, asm.ArSh, asm.Mov, asm.Neg,
}

// swapped returns the low bytes of v in reverse order.
func swapped(v uint64, bytes int) uint64 { return bits.ReverseBytes64(v) >> (64 - 8*bytes) }

func TestComputeIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := drawValue(t), drawValue(t)
		a, b := drawNumber(t, x), drawNumber(t, y)
		op := rapid.SampledFrom(operations).Draw(t, "op")
		r, v := scalar.Compute(op, a, b), concrete.Compute(op, x, y)
		should.Hold(t, r.Contains(v), "%#x %v %#x = %#x, not in %+v", x, op, y, v, r)
		r, v = scalar.Compute32(op, a, b), concrete.Compute32(op, x, y)
		should.Hold(t, r.Contains(v), "32 bits: %#x %v %#x = %#x, not in %+v", x, op, y, v, r)
		r = scalar.Displace(a, b, false)
		should.Hold(t, r.Contains(x+y), "%#x displaced by %#x is not in %+v", x, y, r)
		r = scalar.Displace(a, b, true)
		should.Hold(t, r.Contains(x-y), "%#x displaced by -%#x is not in %+v", x, y, r)
	})
}

func TestResizeIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawValue(t)
		n := drawNumber(t, x)
		for _, size := range []int{1, 2, 4} {
			shift := 64 - 8*size
			r, v := n.Truncate(size), x<<shift>>shift
			should.Hold(t, r.Contains(v), "%#x truncated to %d bytes, %#x, is not in %+v", x, size, v, r)
			r, v = n.Swap(2*size), swapped(x, 2*size)
			should.Hold(t, r.Contains(v), "%#x with %d bytes swapped, %#x, is not in %+v", x, 2*size, v, r)
			r, v = n.SignExtend(size), uint64(int64(x<<shift)>>shift)
			should.Hold(t, r.Contains(v), "%#x sign-extended from %d bytes, %#x, is not in %+v", x, size, v, r)
		}
	})
}

func TestCompareAndRefineAreSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := drawValue(t), drawValue(t)
		a, b := drawNumber(t, x), drawNumber(t, y)
		op := rapid.SampledFrom(comparisons).Draw(t, "op")
		narrow := rapid.Bool().Draw(t, "narrow")
		taken := concrete.Holds(op, x, y, narrow)
		verdict := scalar.Compare(op, a, b, narrow)
		must.Hold(t, (verdict != scalar.Always || taken) && (verdict != scalar.Never || !taken),
			"%#x %v %#x is %v, the verdict %d, of %+v and %+v", x, op, y, taken, verdict, a, b)
		ra, rb := scalar.Refine(op, a, b, narrow, taken)
		must.Hold(t, ra.Contains(x) && rb.Contains(y), "%v %v: %#x, %#x are not in %+v, %+v", op, taken, x, y, ra, rb)
	})
}

func TestWithinIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawValue(t)
		a, b := drawNumber(t, x), drawNumber(t, drawValue(t))
		should.Hold(t, !a.Within(b) || b.Contains(x), "%+v is within %+v, but %#x is not", a, b, x)
		should.Hold(t, a.Within(a) && a.Within(scalar.Unknown()), "%+v is not within itself or within all numbers", a)
	})
}

// What programs depend on: without these bounds, usual code would be refused.
func TestPrecision(t *testing.T) {
	const c = math.MaxUint64
	all := scalar.Unknown()
	byteSized := scalar.Unsigned(1)
	negative := uint64(math.MaxUint64 - 9)
	refined := func(op asm.JumpOp, n scalar.Number, v uint64, narrow bool) scalar.Number {
		r, _ := scalar.Refine(op, n, scalar.Const(v), narrow, true)
		return r
	}
	tests := []struct {
		name       string
		n          scalar.Number
		umin, umax uint64
		smin, smax int64
	}{
		{"unknown", all, 0, c, math.MinInt64, math.MaxInt64},
		{"byte", byteSized, 0, 255, 0, 255},
		{"signed byte", scalar.Signed(1), 0, c, -128, 127},
		{"masked", scalar.Compute(asm.And, all, scalar.Const(60)), 0, 60, 0, 60},
		{"added", scalar.Compute(asm.Add, byteSized, scalar.Const(14)), 14, 269, 14, 269},
		{"subtracted", scalar.Compute(asm.Sub, byteSized, scalar.Const(14)), 0, c, -14, 241},
		{"scaled", scalar.Compute(asm.Mul, byteSized, scalar.Const(20)), 0, 5100, 0, 5100},
		{"shifted", scalar.Compute(asm.LSh, byteSized, scalar.Const(2)), 0, 1020, 0, 1020},
		{"shifted right", scalar.Compute(asm.RSh, all, scalar.Const(60)), 0, 15, 0, 15},
		{"joined", scalar.Compute(asm.Or, byteSized, scalar.Const(256)), 256, 511, 256, 511},
		{"flipped", scalar.Compute(asm.Xor, byteSized, scalar.Const(255)), 0, 255, 0, 255},
		{"arithmetic shift", scalar.Compute(asm.ArSh, scalar.Signed(4), scalar.Const(28)), 0, c, -8, 7},
		{"sign extended by shifts", scalar.Compute(asm.ArSh,
			scalar.Compute(asm.LSh, refined(asm.JSLE, refined(asm.JSGE, all, negative, true), 5, true),
				scalar.Const(32)), scalar.Const(32)), 0, c, -10, 5},
		{"less", refined(asm.JLT, all, 10, false), 0, 9, 0, 9},
		{"signed range", refined(asm.JSLE, refined(asm.JSGE, all, 0, false), 7, false), 0, 7, 0, 7},
		{"narrow signed range", refined(asm.JSLE, refined(asm.JSGE, scalar.Unsigned(4), 0, true), 7, true), 0, 7, 0, 7},
		{"not the edge", refined(asm.JNE, byteSized, 0, false), 1, 255, 1, 255},
		{"truncated", scalar.Compute32(asm.Mov, all, refined(asm.JLE, all, 9, true)), 0, 9, 0, 9},
		{"narrow sum", scalar.Compute32(asm.Add, byteSized, byteSized), 0, 510, 0, 510},
		{"negated", scalar.Compute(asm.Neg, byteSized, all), 0, c, -255, 0},
		{"swapped", byteSized.Swap(2), 0, 0xff00, 0, 0xff00},
		{"all swapped", all.Swap(2), 0, 0xffff, 0, 0xffff},
		{"sum that wraps", scalar.Compute(asm.Add, scalar.Compute(asm.Add, byteSized, scalar.Const(negative)), scalar.Const(20)), 10, 265, 10, 265},
		{"division", scalar.Compute(asm.Div, byteSized, scalar.Const(2)), 0, c, math.MinInt64, math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			should.Hold(t, tt.n.UMin() == tt.umin && tt.n.UMax() == tt.umax && tt.n.SMin() == tt.smin && tt.n.SMax() == tt.smax,
				"%+v, want %d to %d, signed %d to %d", tt.n, tt.umin, tt.umax, tt.smin, tt.smax)
		})
	}
}

func TestBits(t *testing.T) {
	n := scalar.Compute(asm.LSh, scalar.Unsigned(1), scalar.Const(3))
	if !n.Bits().Aligned(8) || n.Bits().Aligned(16) {
		t.Errorf("a byte times 8 is aligned to 8 and no more: %+v", n.Bits())
	}
	if n.Bits().Min() != 0 || n.Bits().Max() != 255*8 || bits.OnesCount64(n.Bits().Mask) != 8 {
		t.Errorf("a byte times 8: %+v", n.Bits())
	}
	v, ok := scalar.Const(7).Const()
	should.Hold(t, ok && v == 7, "a constant is not constant")
}
