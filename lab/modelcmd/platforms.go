package modelcmd

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// listedPlatform is what the list says about a memory system.
type listedPlatform struct {
	Name       string                `json:"name"`
	Summary    string                `json:"summary"`
	DMA        float64               `json:"dma_mb_s"`
	Block      int                   `json:"block_bytes"`
	Mechanisms []coherence.Mechanism `json:"mechanisms"`
	TOML       string                `json:"toml,omitempty"`
}

func listedPlatformOf(name string) (listedPlatform, error) {
	s, err := profile.LoadMemorySystem(name)
	if err != nil {
		return listedPlatform{}, err
	}
	return listedPlatform{Name: name, Summary: s.Summary, DMA: coherence.HighestRate(s), Block: s.NIC.Block, Mechanisms: coherence.Mechanisms(s)}, nil
}

func platformsCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "platforms [NAME]",
		Short: "List the built-in memory systems of model transfer, or print the TOML text of one",
		Long: `List the built-in memory systems of trapeze model transfer, or print the TOML text of one,
to start one of one's own from.

JSON keys, in an array, or in one object with NAME: name, summary, dma_mb_s, block_bytes,
mechanisms; with NAME also toml, the text.`,
		Example: `  trapeze model platforms
  trapeze model platforms sonic-via > mine.toml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				return printPlatform(e, args[0])
			}
			var list []listedPlatform
			for _, name := range profile.MemorySystems() {
				p, err := listedPlatformOf(name)
				if err != nil {
					return err
				}
				list = append(list, p)
			}
			return e.Print(list, func(w io.Writer) error {
				t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
				fmt.Fprintln(t, "name\tDMA MB/s\tblock\tsummary")
				for _, p := range list {
					fmt.Fprintf(t, "%s\t%.0f\t%d B\t%s\n", p.Name, p.DMA, p.Block, p.Summary)
				}
				return t.Flush()
			})
		},
	}
}

// printPlatform prints the text of one.
func printPlatform(e *command.Env, name string) error {
	text, err := profile.MemorySource(name)
	if err != nil {
		return usage("platform", name, strings.Join(profile.MemorySystems(), ", "))
	}
	p, err := listedPlatformOf(name)
	if err != nil {
		return err
	}
	p.TOML = string(text)
	return e.Print(p, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
