package fwcmd

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table writes lines whose cells, separated by tabs, stand in columns.
func table(w io.Writer, lines ...string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		if _, err := fmt.Fprintln(t, l); err != nil {
			return err
		}
	}
	return t.Flush()
}

// row joins cells.
func row(cells ...any) string {
	text := make([]string, len(cells))
	for i, c := range cells {
		text[i] = fmt.Sprint(c)
	}
	return strings.Join(text, "\t")
}
