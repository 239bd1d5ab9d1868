package command

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// Columns is the width of help and prose, in characters: terminals have at least as many.
const Columns = 80

// Wrap breaks what is wider than Columns. Paragraphs, between empty lines, are filled anew.
// Lines of tables, which begin with a space or have two within, go on below their last column.
func Wrap(text string) string {
	var out, paragraph []string
	wide := false
	flush := func() {
		if wide {
			paragraph = fill(strings.Join(paragraph, " "), 0)
		}
		out, paragraph, wide = append(out, paragraph...), nil, false
	}
	for line := range strings.SplitSeq(text, "\n") {
		tooWide := utf8.RuneCountInString(line) > Columns
		switch {
		case line != "" && line[0] != ' ' && !strings.Contains(line, "  "):
			paragraph, wide = append(paragraph, line), wide || tooWide
			continue
		case tooWide:
			flush()
			out = append(out, fill(line, utf8.RuneCountInString(heading.FindString(line)))...)
		default:
			flush()
			out = append(out, line)
		}
	}
	flush()
	return strings.Join(out, "\n")
}

// heading matches all before the last column of a line: its indentation, and a name.
var heading = regexp.MustCompile(`^ *(\S+(, \S+| \S+)?  +)?`)

// fill breaks a line at spaces, and after commas where there is none. The lines that follow
// the first one are indented.
func fill(line string, indent int) (lines []string) {
	for utf8.RuneCountInString(line) > Columns {
		runes := []rune(line)
		at := lastBefore(runes, ' ', indent)
		if at < 0 {
			at = lastBefore(runes, ',', indent) + 1
		}
		if at <= indent {
			break
		}
		lines = append(lines, strings.TrimRight(string(runes[:at]), " "))
		line = strings.Repeat(" ", indent) + strings.TrimLeft(string(runes[at:]), " ")
	}
	return append(lines, strings.TrimRight(line, " "))
}

// lastBefore returns the last place of c with which a line is no wider than Columns, behind
// its indentation; -1 if there is none.
func lastBefore(line []rune, c rune, indent int) int {
	for i := min(Columns, len(line)-1); i > indent; i-- {
		if line[i] == c && (c == ' ' || i < Columns) {
			return i
		}
	}
	return -1
}

// WrapExample breaks lines of a shell that are wider than Columns, as a shell has it.
func WrapExample(text string) string {
	const below = "      "
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		for runes := []rune(line); len(runes) > Columns; runes = []rune(line) {
			at := lastBefore(runes[:Columns-1], ' ', len(below))
			if at < 0 {
				break
			}
			// A flag and its value stay together.
			if flag := strings.LastIndex(string(runes[:at+1]), " --"); flag > len(below) {
				at = utf8.RuneCountInString(line[:flag])
			}
			out, line = append(out, string(runes[:at])+` \`), below+string(runes[at+1:])
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
