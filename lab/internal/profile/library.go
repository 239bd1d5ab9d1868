package profile

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Library has the platforms of one kind: those that are built in, and files of the same form.
type Library[T any] struct {
	files embed.FS
	dir   string
	parse func(l Library[T], title, file string, text []byte) (T, error)
}

// Names returns the built-in platforms, sorted, but for those that serve only as a base of others:
// the names of their files begin with an underscore.
func (l Library[T]) Names() []string {
	entries, err := l.files.ReadDir(l.dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".toml"); !strings.HasPrefix(name, "_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Source returns the text of a built-in platform or base.
func (l Library[T]) Source(name string) ([]byte, error) {
	text, err := l.files.ReadFile(l.dir + "/" + name + ".toml")
	if err != nil {
		return nil, &Error{File: name, Err: ErrUnknown, Allowed: strings.Join(l.Names(), ", ") + ", or a file ending in .toml"}
	}
	return text, nil
}

// Load returns a built-in platform by name, or reads the file if the name ends in .toml. Errors
// are *Error.
func (l Library[T]) Load(name string) (none T, err error) {
	title, file, source := name, name+".toml", l.Source
	if strings.HasSuffix(name, ".toml") {
		title, file, source = strings.TrimSuffix(filepath.Base(name), ".toml"), name, readFile
	}
	text, err := source(name)
	if err != nil {
		return none, err
	}
	return l.parse(l, title, file, text)
}

// onBase decodes a file on top of the built-in one that it is based on, if any: what the file
// does not mention is the base's, which has none of its own.
func onBase[T any](source func(name string) ([]byte, error), file string, text []byte, allowed keys, base func(*T) *string) (*T, error) {
	own, merged := new(T), new(T)
	if err := decode(file, text, own, allowed); err != nil {
		return nil, err
	}
	if name := base(own); name != nil {
		under, err := source(*name)
		if err != nil {
			return nil, &Error{File: file, Key: "base", Value: *name, Err: fmt.Errorf("%w: %w", ErrBase, err)}
		}
		if err := decode(*name, under, merged, allowed); err != nil {
			return nil, err
		}
		if base(merged) != nil {
			return nil, &Error{File: file, Key: "base", Value: *name, Err: ErrBase, Allowed: "a built-in platform without a base of its own"}
		}
	}
	return merged, decode(file, text, merged, allowed)
}

// maxFile bounds a user's file in bytes; the built-in ones are under 4 KiB.
const maxFile = 1 << 20

func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, &Error{File: name, Err: fmt.Errorf("%w: %w", ErrUnreadable, err)}
	}
	if info.Size() > maxFile || !info.Mode().IsRegular() {
		return nil, &Error{File: name, Err: ErrUnreadable, Allowed: "a regular file of at most 1 MiB"}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, &Error{File: name, Err: fmt.Errorf("%w: %w", ErrUnreadable, err)}
	}
	return text, nil
}
