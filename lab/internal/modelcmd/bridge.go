package modelcmd

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// bridgeFlags say who meets at a bridge.
type bridgeFlags struct {
	Platform string              `flag:"platform" default:"natoma" help:"platform with a bridge by name, or a TOML file"`
	DMA      coherence.Direction `flag:"dma" default:"send" oneof:"send,receive,none" help:"what the NIC does: send (it reads host memory), receive (it writes it) or none"`
	Programs []coherence.Program `flag:"programs" split:"comma" default:"copy,pio-write,pio-read" oneof:"copy,pio-write,pio-read,none" help:"what the processor does: copy, pio-write, pio-read or none"`
	Bytes    int                 `flag:"bytes" default:"8192" help:"bytes of each DMA transfer"`
}

// met is a program of the processor that has met DMA at a bridge.
type met struct {
	Program coherence.Program   `json:"program"`
	With    coherence.Direction `json:"with"`
	coherence.Outcome
}

// meet has programs meet DMA transfers, one after the other.
func meet(f *bridgeFlags, ctx context.Context) (all []met, err error) {
	if len(f.Programs) > len(coherence.Programs) {
		return nil, usage("--programs", fmt.Sprint(f.Programs), fmt.Sprintf("1 to %d of them", len(coherence.Programs)))
	}
	s, err := builtIn("--platform", f.Platform, profile.Bridges)
	if err != nil {
		return nil, err
	}
	for _, p := range f.Programs {
		r, err := coherence.AtBridge(ctx, coherence.Contest{System: s, Program: p, DMA: f.DMA, Bytes: f.Bytes})
		if err != nil {
			return nil, err
		}
		all = append(all, met{p, f.DMA, *r})
	}
	return all, nil
}
