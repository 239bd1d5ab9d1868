package datasheet_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// table is one Markdown table of SPEC.md.
type table struct {
	line    int    // of its header, from 1
	caption string // last line of text before it
	columns []string
	rows    []row
}

// row is one line of a table, by column.
type row struct {
	line  int
	cells map[string]string
}

func (t *table) has(columns ...string) bool {
	return !slices.ContainsFunc(columns, func(c string) bool { return !slices.Contains(t.columns, c) })
}

// number reads a cell that must hold a number, in any base Go knows.
func (r row) number(column string) (uint64, error) {
	v, err := strconv.ParseUint(r.cells[column], 0, 64)
	if err != nil {
		return 0, fmt.Errorf("line %d: %s %q is not a number", r.line, column, r.cells[column])
	}
	return v, nil
}

var (
	tableRule = regexp.MustCompile(`^\|(\s*:?-+:?\s*\|)+$`)
	cellSplit = regexp.MustCompile(`[^\\]\|`)
)

// parseTables finds the tables of a Markdown text. Backquotes around cells are
// taken off; an escaped bar belongs to its cell.
func parseTables(text string) ([]table, error) {
	var tables []table
	var caption string
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if !strings.HasPrefix(line, "|") || i+1 == len(lines) || !tableRule.MatchString(strings.TrimSpace(lines[i+1])) {
			if line != "" {
				caption = line
			}
			continue
		}
		t := table{line: i + 1, caption: caption, columns: splitCells(line)}
		for i += 2; i < len(lines) && strings.HasPrefix(lines[i], "|"); i++ {
			cells := splitCells(strings.TrimSpace(lines[i]))
			if len(cells) != len(t.columns) {
				return nil, fmt.Errorf("line %d: %d cells in a table of %d columns", i+1, len(cells), len(t.columns))
			}
			r := row{line: i + 1, cells: map[string]string{}}
			for c, name := range t.columns {
				r.cells[name] = cells[c]
			}
			t.rows = append(t.rows, r)
		}
		tables = append(tables, t)
		caption = ""
	}
	return tables, nil
}

func splitCells(line string) []string {
	line = strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|")
	var cells []string
	for {
		at := cellSplit.FindStringIndex(line)
		cell := line
		if at != nil {
			cell = line[:at[0]+1]
		}
		cell = strings.TrimSpace(strings.ReplaceAll(cell, `\|`, "|"))
		if len(cell) > 2 && strings.Count(cell, "`") == 2 {
			cell = strings.Trim(cell, "`")
		}
		cells = append(cells, cell)
		if at == nil {
			return cells
		}
		line = line[at[1]:]
	}
}
