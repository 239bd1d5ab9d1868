package profile

import (
	"path"
	"strings"
)

// Parse reads a profile from text; file is used in errors. A base, if it names
// one, is a built-in profile.
func Parse(file string, text []byte) (*Profile, error) {
	return parse(strings.TrimSuffix(path.Base(file), ".toml"), file, text, Hosts.Source)
}

// ParseCells reads a platform with cells from text.
func ParseCells(file string, text []byte) (*Cells, error) {
	return parseCells(CellHosts, strings.TrimSuffix(path.Base(file), ".toml"), file, text)
}

// ParseMemory reads a memory system from text; file is used in errors.
func ParseMemory(file string, text []byte) (*MemorySystem, error) {
	return parseMemory(Systems, strings.TrimSuffix(path.Base(file), ".toml"), file, text)
}
