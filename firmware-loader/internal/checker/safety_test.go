package checker_test

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// drawBytes draws memory, of which much is small numbers.
func drawBytes(t *rapid.T, n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 8 {
		v := rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64(), rapid.Just(^uint64(0))).Draw(t, "memory")
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], v)
		copy(b[i:], word[:])
	}
	return b
}

// run runs an accepted program on drawn inputs, and fails if it does what the checker
// has proved that it does not do.
func run(t *rapid.T, p abi.Program, report checker.Report) (steps int) {
	size, frame := abi.FrameContextSize, []byte(nil)
	if p.Hook.IsPulse() {
		size = abi.PulseSize
	} else {
		frame = drawBytes(t, rapid.SampledFrom([]int{0, 1, 14, 34, 38, 42, 60, 61, 80}).Draw(t, "frame"))
	}
	var values [][]byte
	for _, m := range p.Maps {
		values = append(values, drawBytes(t, int(m.Value)))
	}
	m := newMachine(p, drawBytes(t, size), frame, values)
	m.Found = func(int) bool { return rapid.Bool().Draw(t, "found") }
	_, err := m.Run(report.WorstCase)
	must.Hold(t, err == nil, "accepted as %+v:\n%v\nbut: %v", report, p.Instructions, err)
	return m.Steps
}

// Programs that the checker accepts never do, on any input that is tried, what it
// says that they never do; nor do they take longer.
func TestAcceptedProgramsAreSafe(t *testing.T) {
	checks(t, 3000)
	originals := samples()
	accepted, atWorst := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t, originals)
		report, err := checker.Check(p)
		if err != nil {
			return
		}
		accepted++
		longest := 0
		for range 4 {
			longest = max(longest, run(t, p, report))
		}
		if longest == report.WorstCase {
			atWorst++
		}
	})
	t.Logf("%d programs were accepted, %d ran as long as the worst case", accepted, atWorst)
	should.Hold(t, accepted != 0 && atWorst*4 >= accepted, "the worst cases are far from what runs take")
}

// drawProgram draws a generated program, a sample, or a mutation of either.
func drawProgram(t *rapid.T, originals []sample) abi.Program {
	var p abi.Program
	if n := rapid.IntRange(-4, len(originals)-1).Draw(t, "sample"); n >= 0 {
		p = link(t, originals[n].hook, originals[n].code)
	} else {
		g := &generator{T: t, hook: abi.Hook(rapid.IntRange(0, int(abi.Hooks)-1).Draw(t, "hook")), maps: testMaps()}
		p = g.program()
		if n < -1 {
			return p
		}
	}
	return linkSteps(p.Hook, p.Maps, mutate(t, toSteps(p.Instructions)))
}
