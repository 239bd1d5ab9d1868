package hostpci

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Root is the folder below which sys, proc, dev, run and usr are found: "/" for
// this host.
type Root string

// Live says that the root is this host's own.
func (r Root) Live() bool { return filepath.Clean(string(r)) == "/" }

// Path is where a file lies, such as "sys/bus/pci".
func (r Root) Path(name string) string { return filepath.Join(string(r), name) }

// Text returns the content of a file without white space around it.
func (r Root) Text(name string) (string, error) {
	b, err := os.ReadFile(r.Path(name))
	return strings.TrimSpace(string(b)), err
}

// Optional is Text for files that not every kernel or function has: those that
// are missing, or that may not or cannot be read now, are empty.
func (r Root) Optional(name string) string {
	s, err := r.Text(name)
	if err != nil {
		return ""
	}
	return s
}

// Link returns the last element of what a symbolic link points to; nothing if
// there is no such link.
func (r Root) Link(name string) (string, error) {
	target, err := os.Readlink(r.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return filepath.Base(target), nil
}

// Names lists what a folder holds, sorted; nothing if there is no such folder.
func (r Root) Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(r.Path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Exists says whether there is such a file, also if it may not be read.
func (r Root) Exists(name string) bool {
	_, err := os.Lstat(r.Path(name))
	return err == nil
}
