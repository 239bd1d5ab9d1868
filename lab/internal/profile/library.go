package profile

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Library has the platforms of one kind: those that are built in, and files of the same form. A file of the user's may
// rest on a built-in one, or on another one beside it.
type Library[T any] struct {
	files   embed.FS
	dir     string
	resolve func(*resolver) T
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

// About returns the summary and the text of a built-in platform.
func (l Library[T]) About(name string) (summary, text string) {
	b, _ := l.Source(name)
	file, _ := read(name, b)
	summary, _ = file.settings["summary"].(string)
	return summary, string(b)
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
	return l.parse(title, file, text)
}

// maxBases bounds how many files a file rests on, one upon the other.
const maxBases = 8

func (l Library[T]) parse(title, file string, text []byte) (none T, err error) {
	r := &resolver{name: title, file: file, known: []string{"base"}}
	for {
		own, err := read(file, text)
		if err != nil {
			return none, err
		}
		r.layers = append(r.layers, own)
		v, based := own.settings["base"]
		if !based {
			break
		}
		base := fmt.Sprint(v)
		bad := &Error{File: file, Key: "base", Value: base, Err: ErrBase}
		if len(r.layers) > maxBases {
			bad.Allowed = fmt.Sprintf("a profile that rests on less than %d others, and not on itself", maxBases)
			return none, bad
		}
		source := l.Source
		if file = base; strings.HasSuffix(file, ".toml") { // no built-in one has such a base
			file, source = filepath.Join(filepath.Dir(r.file), filepath.Base(file)), readFile
		}
		if text, err = source(file); err != nil {
			bad.Err = fmt.Errorf("%w: %w", ErrBase, err)
			return none, bad
		}
	}
	p := l.resolve(r)
	if r.strangers(); r.err != nil {
		return none, r.err
	}
	return p, nil
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
