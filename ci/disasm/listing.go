package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// parseListing reads what "go tool objdump -gnu" prints and returns the
// instructions of each function, in GNU notation, by symbol. Go's own notation
// does not always tell the width of an access; the GNU one does.
func parseListing(r io.Reader) (map[string][]string, error) {
	functions := map[string][]string{}
	symbol := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\t ")
		if rest, ok := strings.CutPrefix(line, "TEXT "); ok {
			symbol, _, ok = strings.Cut(rest, "(SB)")
			if !ok {
				return nil, fmt.Errorf("no symbol in %q", line)
			}
			functions[symbol] = nil
			continue
		}
		// Location, address, bytes, then the instruction. Functions are padded
		// with what is no instruction: "?", without GNU notation.
		if line == "" || strings.HasSuffix(line, "\t?") {
			continue
		}
		_, gnu, ok := strings.Cut(line, " // ")
		if !ok {
			return nil, fmt.Errorf("no instruction in GNU notation in %q", line)
		}
		if symbol == "" {
			return nil, fmt.Errorf("instruction outside a function: %q", line)
		}
		functions[symbol] = append(functions[symbol], strings.TrimSpace(gnu))
	}
	return functions, lines.Err()
}
