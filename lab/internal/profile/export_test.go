package profile

import (
	"path"
	"strings"
)

// Parse reads a profile from text; file is used in errors. A base, if it names
// one, is a built-in profile.
func Parse(file string, text []byte) (*Profile, error) {
	return parse(strings.TrimSuffix(path.Base(file), ".toml"), file, text, Source)
}
