package published

import "github.com/trapeze-nic/trapeze/lab/internal/coherence"

// bridgeKey is a contest at a bridge that was computed.
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
