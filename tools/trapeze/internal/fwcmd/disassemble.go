package fwcmd

import (
	"strings"

	"github.com/spf13/cobra"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
)

// listing is what disasm --json prints.
type listing struct {
	File string   `json:"file"`
	Text []string `json:"lines"`
}

func (x *commands) disassemble() *cobra.Command {
	return &cobra.Command{
		Use:   "disasm FILE",
		Short: "Show the instructions of an image, with the lines of their source",
		Long: `Show the instructions of an image. The number of an instruction counts 8-byte
slots, as refusals and a NIC's faults do. Lines of the source stand before the
instructions that they became, if the image has debug information (clang -g).`,
		Example: `  trapeze fw disasm count.img`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := firmware.Open(args[0])
			if err != nil {
				return err
			}
			if !x.JSON() {
				return s.Disassemble(c.OutOrStdout())
			}
			var text strings.Builder
			if err := s.Disassemble(&text); err != nil {
				return err
			}
			return writeJSON(c.OutOrStdout(), listing{File: args[0], Text: strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")})
		},
	}
}
