package pipeline

import "fmt"

// MaxSchedule is the greatest number of entries in a schedule or table.
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

// NewSchedule makes a schedule of pulses that start when all their bytes (each
// size at least 1) are there.
func NewSchedule(sizes []int) (Schedule, error) {
	steps := make([]Step, len(sizes))
	for i, n := range sizes {
		steps[i] = Step{Wait: n, Bytes: n}
	}
	return NewSteps(steps)
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

// TableRow gives the fragment size for frames of up to UpTo bytes.
type TableRow struct {
	UpTo     int // bytes, ascending from row to row
	Fragment int // bytes
}

// Table looks the fragment size up by frame length, as BIP does. Frames longer
// than the last row use the last row.
type Table struct {
	rows []TableRow
}

// NewTable copies rows, which must ascend, into a table.
func NewTable(rows []TableRow) (Table, error) {
	if len(rows) == 0 || len(rows) > MaxSchedule {
		return Table{}, outOfRange("table", "number of rows", len(rows), fmt.Sprintf("1 to %d", MaxSchedule))
	}
	last := 0
	for _, r := range rows {
		if r.UpTo <= last || r.UpTo > MaxFrame {
			return Table{}, outOfRange("table", "frame length", r.UpTo, fmt.Sprintf("%d to %d bytes, ascending", last+1, MaxFrame))
		}
		if r.Fragment < 1 || r.Fragment > MaxFrame {
			return Table{}, outOfRange("table", "fragment", r.Fragment, fmt.Sprintf("1 to %d bytes", MaxFrame))
		}
		last = r.UpTo
	}
	return Table{rows: append([]TableRow(nil), rows...)}, nil
}

// Next implements Policy.
func (t Table) Next(v View) int {
	fragment := t.rows[len(t.rows)-1].Fragment
	for _, r := range t.rows {
		if v.Length <= r.UpTo {
			fragment = r.Fragment
			break
		}
	}
	return Static{Pulse: fragment}.Next(v)
}
