package report

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Met is a program of the processor that has met DMA at a bridge.
type Met struct {
	Program coherence.Program   `json:"program"`
	With    coherence.Direction `json:"with"`
	coherence.Outcome
}

// Bridge has programs meet DMA transfers of so many bytes, one after the other.
type Bridge struct {
	System   *profile.MemorySystem
	Programs []coherence.Program
	DMA      coherence.Direction
	Bytes    int
}

// Run computes what each program and DMA reach.
func (o Bridge) Run(ctx context.Context) ([]Met, error) {
	var all []Met
	for _, p := range o.Programs {
		r, err := coherence.AtBridge(ctx, coherence.Contest{System: o.System, Program: p, DMA: o.DMA, Bytes: o.Bytes})
		if err != nil {
			return nil, err
		}
		all = append(all, Met{p, o.DMA, *r})
	}
	return all, nil
}

// Draw draws the rates of both, alone and together (CS-1997-20, figure 7).
func (o Bridge) Draw(ctx context.Context) ([]byte, error) {
	all, err := o.Run(ctx)
	if err != nil {
		return nil, err
	}
	b := plot.Bars{
		Title: "At the bridge: " + o.System.Name, Note: fmt.Sprintf("DMA: %s, transfers of %d bytes; on the memory bus it is: %s first", o.DMA, o.Bytes, o.System.Bridge.First),
		X: "program of the processor", Y: plot.Axis{Label: "rate, MB/s"}, Parts: []string{"processor", "DMA"},
	}
	for _, m := range all {
		g := plot.Group{Name: string(m.Program)}
		for _, bar := range []struct {
			name           string
			processor, dma float64
		}{{"alone", m.Processor.Alone, 0}, {"together", m.Processor.Together, 0}, {"alone", 0, m.DMA.Alone}, {"together", 0, m.DMA.Together}} {
			g.Bars = append(g.Bars, plot.Bar{Name: bar.name, Parts: []float64{bar.processor, bar.dma}})
		}
		b.Groups = append(b.Groups, g)
	}
	return b.SVG()
}
