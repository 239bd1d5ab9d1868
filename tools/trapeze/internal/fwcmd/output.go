package fwcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"
)

// ErrUsage: a flag or argument cannot be used; scripts tell it from a failure by
// the exit code that main gives it.
var ErrUsage = errors.New("bad option")

// UsageError names an option and its range.
type UsageError struct{ Option, Value, Allowed string }

func (e *UsageError) Error() string {
	return fmt.Sprintf("%s %q: %v (allowed: %s)", e.Option, e.Value, ErrUsage, e.Allowed)
}

// Unwrap returns ErrUsage.
func (e *UsageError) Unwrap() error { return ErrUsage }

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// hinted adds the flag that would have helped.
func hinted(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w (--force replaces it)", err)
	}
	return err
}

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
