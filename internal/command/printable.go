package command

import "regexp"

// controls are the characters that a terminal takes for a command, in UTF-8: all control characters but the ends of
// lines and tabs, and what Emphasis returns.
var controls = regexp.MustCompile(`\x1b\[[01]m|[\x00-\x08\x0b-\x1f\x7f-\x{9f}]`)

// Printable puts question marks in the place of control characters, other than the ends of lines, tabs
// and what Emphasis returns: names, errors and texts of other processes and machines are not trusted
// with the user's terminal.
func Printable(s string) string {
	return controls.ReplaceAllStringFunc(s, func(c string) string {
		if len(c) > 2 { // no control character is as long in UTF-8
			return c
		}
		return "?"
	})
}
