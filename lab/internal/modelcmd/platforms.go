package modelcmd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// catalogue is a list of built-in platforms of a kind, each with its TOML text.
type catalogue[T any] struct {
	kind   string                                       // names the argument in errors
	listed []string                                     // names
	others []string                                     // that can be printed, too
	source func(name string) ([]byte, error)            // text of one
	of     func(name, toml string) (entry T, err error) // what JSON says about it; toml is empty in the list
	header string                                       // of the table
	row    func(entry T) string
}

// print prints the list, or the text of the one that args names.
func (c catalogue[T]) print(e *command.Env, args []string) error {
	if len(args) == 1 {
		text, err := c.source(args[0])
		if err != nil {
			return usage(c.kind, args[0], strings.Join(append(c.listed, c.others...), ", "))
		}
		if !e.JSON {
			_, err := e.Stdout.Write(text)
			return err
		}
		p, err := c.of(args[0], string(text))
		if err != nil {
			return err
		}
		return e.PrintJSON(p)
	}
	var list []T
	for _, name := range c.listed {
		p, err := c.of(name, "")
		if err != nil {
			return err
		}
		list = append(list, p)
	}
	return e.Print(list, func(w io.Writer) error { return command.Table(w, 0, c.header, list, c.row) })
}

// listedPlatform is the list's entry of a memory system.
type listedPlatform struct {
	Name       string                `json:"name"`
	Summary    string                `json:"summary"`
	DMA        float64               `json:"dma_mb_s"`
	Block      int                   `json:"block_bytes"`
	Mechanisms []coherence.Mechanism `json:"mechanisms"`
	TOML       string                `json:"toml,omitempty" help:"with NAME: the text"`
}

func listedPlatformOf(name, toml string) (listedPlatform, error) {
	s, err := profile.Systems.Load(name)
	if err != nil {
		return listedPlatform{}, err
	}
	return listedPlatform{name, s.Summary, coherence.HighestRate(s), s.NIC.Block, coherence.Mechanisms(s), toml}, nil
}

func (x *commands) platforms(_ context.Context, _ *cmdtable.NoFlags, args []string) error {
	return catalogue[listedPlatform]{
		kind: "platform", listed: profile.Systems.Names(), source: profile.Systems.Source, of: listedPlatformOf,
		header: "name\tDMA MB/s\tblock\tsummary",
		row: func(p listedPlatform) string {
			return fmt.Sprintf("%s\t%.0f\t%d B\t%s", p.Name, p.DMA, p.Block, p.Summary)
		},
	}.print(x.Env, args)
}
