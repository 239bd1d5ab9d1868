package fwcmd

import (
	"context"
	"io"
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
	text := img.spec.Disassembly()
	return x.Print(listing{File: args[0], Text: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}
