package wire_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

func TestFaultOptions(t *testing.T) {
	for _, o := range []wire.FaultOptions{
		{Loss: -0.1}, {Loss: 1.1}, {Duplicate: 2}, {Reorder: math.Inf(1)}, {Corrupt: math.NaN()},
	} {
		a, _ := memoryPair(t, wire.MemoryOptions{})
		should.Refuse(wire.NewFault(a, o))(t, wire.ErrOptions, "%+v: error", o)
		should.Be(t, a.LinkUp(), true, "%+v: the refused wire was closed", o)
	}
}

// passed sends numbered frames of 100 bytes through faults and returns the
// frames that arrive.
func passed(t *testing.T, o wire.FaultOptions, frames int) ([][]byte, wire.FaultStats) {
	t.Helper()
	a, b := memoryPair(t, wire.MemoryOptions{})
	f := must.Get(wire.NewFault(a, o))(t)
	should.Be(t, f.Checksum(), true, "a wire that damages frames wants no checksums")
	var got [][]byte
	take := func() {
		for p := b.Receive(); p != nil; p = b.Receive() {
			got = append(got, slices.Clone(p))
			b.Release()
		}
	}
	for i := range frames {
		p := f.Reserve(100)
		clear(p)
		binary.LittleEndian.PutUint32(p, uint32(i))
		f.Commit()
		f.Flush()
		take()
	}
	// Looking for frames lets the last ones that were held back go.
	for range 1000 {
		f.Receive()
	}
	take()
	return got, wire.Stats(f).(wire.FaultyStats).Faults
}

func numbers(frames [][]byte) []uint32 {
	var n []uint32
	for _, f := range frames {
		n = append(n, binary.LittleEndian.Uint32(f))
	}
	return n
}

func TestFaultsAreDeterministic(t *testing.T) {
	o := wire.FaultOptions{Loss: 0.1, Duplicate: 0.1, Reorder: 0.2, Corrupt: 0.1, Seed: 7}
	one, counts := passed(t, o, 2000)
	two, again := passed(t, o, 2000)
	// cmp, which looks for the least difference, takes seconds for so many bytes.
	same := func(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
	should.Hold(t, same(one, two) && counts == again, "the same seed did something else: %+v and %+v", counts, again)
	o.Seed++
	if three, _ := passed(t, o, 2000); same(one, three) {
		t.Error("another seed did the same")
	}
}

func TestFaultLoss(t *testing.T) {
	const n = 20000
	got, counts := passed(t, wire.FaultOptions{Loss: 0.2, Seed: 1}, n)
	should.Hold(t, uint64(len(got))+counts.Lost == n && counts.Frames == n, "%d of %d frames arrived, counts %+v", len(got), n, counts)
	// Ten standard deviations of a binomial distribution.
	if lost := float64(counts.Lost); math.Abs(lost-0.2*n) > 10*math.Sqrt(n*0.2*0.8) {
		t.Errorf("%v of %d frames were lost, asked for a fifth", lost, n)
	}
	should.Be(t, slices.IsSorted(numbers(got)), true, "loss reordered frames")
}

func TestFaultExtremes(t *testing.T) {
	if got, _ := passed(t, wire.FaultOptions{Loss: 1}, 100); len(got) != 0 {
		t.Errorf("%d frames survived certain loss", len(got))
	}
	got, counts := passed(t, wire.FaultOptions{Duplicate: 1}, 100)
	for i, n := range numbers(got) {
		must.Be(t, n, uint32(i/2), "frame %d is number", i)
	}
	should.Be(t, len(got), 200, "frames arrived")
	should.Be(t, counts.Duplicated, 100, "counted")
}

func TestFaultReorder(t *testing.T) {
	const n = 1000
	got, counts := passed(t, wire.FaultOptions{Reorder: 0.3, Seed: 3}, n)
	order := numbers(got)
	should.Be(t, slices.IsSorted(order) || counts.Reordered == 0, false, "nothing was reordered")
	for at, number := range order {
		// Later by at most eight frames, earlier by at most those held back.
		if d := at - int(number); d > 8 || d < -8 {
			t.Errorf("frame %d arrived in place %d", number, at)
		}
	}
	slices.Sort(order)
	should.Hold(t, len(order) == n && len(slices.Compact(order)) == n, "%d frames became %d", n, len(order))
}

func TestFaultCorruptIsNoticed(t *testing.T) {
	got, counts := passed(t, wire.FaultOptions{Corrupt: 1, Seed: 5}, 500)
	must.Be(t, len(got), 500, "frames arrived")
	must.Be(t, counts.Corrupted, 500, "counted")
	for i, f := range got {
		sent := make([]byte, len(f))
		binary.LittleEndian.PutUint32(sent, uint32(i))
		// The checksum's own field is left out of it, so damage there is found
		// by comparing.
		should.Be(t, slices.Equal(f, sent), false, "frame %d was not damaged", i)
		if !slices.Equal(f[:60], sent[:60]) || !slices.Equal(f[64:], sent[64:]) {
			if datasheet.FrameChecksumOf(f) == datasheet.FrameChecksumOf(sent) {
				t.Errorf("the checksum does not notice the damage to frame %d", i)
			}
		}
	}
}

func TestFaultOfFullWire(t *testing.T) {
	a, b := memoryPair(t, wire.MemoryOptions{MTU: 1024, Ring: 1})
	f := must.Get(wire.NewFault(a, wire.FaultOptions{Duplicate: 1, Reorder: 0.5, Seed: 2}))(t)
	sent := 0
	for send(f, make([]byte, 1024)) {
		sent++
	}
	// With nobody receiving, the wire fills up; then everything still arrives.
	arrived := 0
	for range 10000 {
		f.Receive()
		for b.Receive() != nil {
			b.Release()
			arrived++
		}
	}
	if counts := wire.Stats(f).(wire.FaultyStats).Faults; arrived < sent || uint64(arrived) != counts.Frames+counts.Duplicated {
		t.Errorf("%d frames sent, %d arrived, counts %+v", sent, arrived, counts)
	}
}
