package published

import (
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/lab/internal/cellmodel"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
)

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

func megabytes(gigabits float64) float64 { return gigabits * 1000 / 8 }

type bridgeKey struct {
	platform string
	program  coherence.Program
	dma      coherence.Direction
	bytes    int
}

// atBridge has a program and DMA transfers of the row's payload meet.
func (f *figure) atBridge(program coherence.Program, dma coherence.Direction) *coherence.Outcome {
	k := bridgeKey{f.name, program, dma, max(f.Payload, 1)}
	return kept(f, k, func() (*coherence.Outcome, error) {
		return coherence.AtBridge(f.m.ctx, coherence.Contest{System: f.bridge, Program: program, DMA: dma, Bytes: k.bytes})
	})
}

// programmed is the rate of a program that has the bridge for itself.
func programmed(p coherence.Program) func(*figure) float64 {
	return func(f *figure) float64 { return f.atBridge(p, coherence.NoDMA).Processor.Alone }
}
