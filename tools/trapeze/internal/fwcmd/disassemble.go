package fwcmd

import (
	"context"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
)

// listing is the JSON output of disasm.
type listing struct {
	File string   `json:"file"`
	Text []string `json:"lines"`
}

func (x *commands) disassemble(_ context.Context, _ *cmdtable.NoFlags, args []string) error {
	img, err := Open(args[0])
	if err != nil {
		return err
	}
	if !x.JSON {
		return img.spec.Disassemble(x.Stdout)
	}
	var text strings.Builder
	if err := img.spec.Disassemble(&text); err != nil {
		return err
	}
	return x.PrintJSON(listing{File: args[0], Text: strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")})
}
