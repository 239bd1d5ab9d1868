package published

import (
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/lab/internal/cellmodel"
)

// lone is the time of one cell.
func (f *figure) lone() float64 {
	return f.cellRun(cellmodel.Options{Scenario: "single"}).OneWay.Microseconds()
}

// scenario runs one with messages of the row's payload, or else of its own.
func (f *figure) scenario(name string) *cellmodel.Result {
	return f.cellRun(cellmodel.Options{Scenario: name, Bytes: f.Payload})
}

func (f *figure) cellRun(o cellmodel.Options) *cellmodel.Result {
	o.Platform = f.cells
	return kept(f, o, func() (*cellmodel.Result, error) { return cellmodel.Run(o) })
}

// messageInterval is the time between messages of a stream.
func (f *figure) messageInterval() float64 {
	return f.scenario("stream").Interval.Microseconds() * float64(cells.Count(f.Payload))
}

// perParticipant returns what one more participant adds to the work of a barrier.
func (f *figure) perParticipant() float64 {
	const few, many = 16, 64
	work := func(n int) float64 {
		return f.cellRun(cellmodel.Options{Scenario: "barrier", Participants: n}).Barrier.Microseconds()
	}
	return (work(many) - work(few)) / (many - few)
}

// megabytes are MB/s of Gb/s.
func megabytes(gigabits float64) float64 { return gigabits * 1000 / 8 }
