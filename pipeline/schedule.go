package pipeline

import "fmt"

// MaxSchedule is the greatest number of entries in a schedule.
const MaxSchedule = 4096

// Step is one transfer of a schedule.
type Step struct {
	Wait  int // bytes that must be there before it starts
	Bytes int // bytes that it moves if they are there by then; at least Wait
}

// Schedule moves pulses of given sizes in turn; the last step repeats to the end
// of the frame. Sources: static variable fragmentation (patent, figure 3);
// Wang et al. for precomputed optimal schedules; with one schedule for each
// stage it is their hierarchical scheme.
type Schedule struct {
	steps []Step
}

// pulsesOf makes a schedule of pulses that start when all their bytes are there.
func pulsesOf(sizes []int) Schedule {
	steps := make([]Step, len(sizes))
	for i, n := range sizes {
		steps[i] = Step{Wait: n, Bytes: n}
	}
	return Schedule{steps}
}

// NewSteps copies steps into a schedule. A step whose Wait is below its Bytes
// starts early and counts on bytes that arrive while the transfer is being set up.
func NewSteps(steps []Step) (Schedule, error) {
	if len(steps) == 0 || len(steps) > MaxSchedule {
		return Schedule{}, outOfRange("schedule", "number of steps", len(steps), fmt.Sprintf("1 to %d", MaxSchedule))
	}
	for _, s := range steps {
		if s.Bytes < 1 || s.Bytes > MaxFrame {
			return Schedule{}, outOfRange("schedule", "size", s.Bytes, fmt.Sprintf("1 to %d bytes", MaxFrame))
		}
		if s.Wait < 1 || s.Wait > s.Bytes {
			return Schedule{}, outOfRange("schedule", "wait", s.Wait, fmt.Sprintf("1 to %d bytes, the step's size", s.Bytes))
		}
	}
	return Schedule{steps: append([]Step(nil), steps...)}, nil
}

// Next implements Policy.
func (s Schedule) Next(v View) int {
	end := 0
	var step Step
	for _, step = range s.steps {
		if end += step.Bytes; end > v.Sent {
			break
		}
	}
	if end <= v.Sent {
		end += ((v.Sent-end)/step.Bytes + 1) * step.Bytes
	}
	n, pulse := v.Available(), end-v.Sent
	if n < step.Wait && n < pulse && !v.Finished() {
		return 0
	}
	return min(n, pulse)
}

// fragments has the size of a fragment for frames up to a length, in bytes. BIP's idea; the
// rows are ours: whole frames up to 512 bytes, then about the square root of
// length times 160 bytes, which balances start-up against per-fragment cost
// where a fragment costs as much as about 160 bytes take.
var fragments = []struct{ upTo, bytes int }{
	{512, 512}, {1024, 416}, {2048, 576}, {4096, 800}, {8192, 1152}, {16384, 1600}, {32768, 2304}, {MaxFrame, 3232},
}

// Table looks the fragment size up by frame length, as BIP does.
type Table struct{}

// Next implements Policy.
func (Table) Next(v View) int {
	row := 0
	for v.Length > fragments[row].upTo {
		row++
	}
	return Static{Pulse: fragments[row].bytes}.Next(v)
}
