// Package jsonout prints the one JSON value that a command has for programs.
package jsonout

import (
	"encoding/json"
	"io"
)

// Print writes v in lines that people can read too, and does not escape what only
// HTML needs escaped.
func Print(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
