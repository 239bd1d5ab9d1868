package fwcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
)

// listing is what disasm --json prints.
type listing struct {
	File string   `json:"file"`
	Text []string `json:"lines"`
}

func (x *commands) disassemble() *cobra.Command {
	return &cobra.Command{
		Use:   "disasm IMAGE",
		Short: "Show the instructions of an image, with the lines of their source",
		Long: `Show the instructions of an image. The number of an instruction counts 8-byte
slots, as refusals and a NIC's faults do. Lines of the source stand before the
instructions that they became, if the image has debug information (clang -g). What
the processor of a vendor's image executes is not known.

` + keys.Of(listing{}),
		Example: `  trapeze fw disasm count.img
  trapeze fw disasm image:acl`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			img, err := Open(args[0])
			if err != nil {
				return err
			}
			if img.vendor != nil {
				return &option.Error{Option: "image", Value: args[0], Allowed: "an ELF file, image:NAME"}
			}
			if !x.JSON {
				return img.spec.Disassemble(c.OutOrStdout())
			}
			var text strings.Builder
			if err := img.spec.Disassemble(&text); err != nil {
				return err
			}
			return x.PrintJSON(listing{File: args[0], Text: strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")})
		},
	}
}
