package profile

import (
	"path"
	"strings"
)

// Parse reads a profile from text; file is used in errors.
func Parse(file string, text []byte) (*Profile, error) { return Hosts.parse(title(file), file, text) }

// ParseCells reads a platform with cells from text.
func ParseCells(file string, text []byte) (*Cells, error) {
	return CellHosts.parse(title(file), file, text)
}

// ParseMemory reads a memory system from text; file is used in errors.
func ParseMemory(file string, text []byte) (*MemorySystem, error) {
	return Systems.parse(title(file), file, text)
}

func title(file string) string { return strings.TrimSuffix(path.Base(file), ".toml") }
