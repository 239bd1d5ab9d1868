package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// libraryFolders is where a Debian root keeps libraries.
var libraryFolders = []string{"usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib"}

// libraries returns the shared libraries that a program of a root needs, the
// loader included, as paths within the root.
func libraries(root, program string) ([]string, error) {
	var list []string
	seen := map[string]bool{}
	for todo := []string{program}; len(todo) > 0; todo = todo[1:] {
		needed, err := neededBy(filepath.Join(root, todo[0]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", todo[0], err)
		}
		for _, name := range needed {
			if seen[name] {
				continue
			}
			seen[name] = true
			path, err := findLibrary(root, name)
			if err != nil {
				return nil, fmt.Errorf("%s needs %s: %w", todo[0], name, err)
			}
			list = append(list, path)
			todo = append(todo, path)
		}
	}
	return list, nil
}

// neededBy lists the names of the libraries and the loader in a file.
func neededBy(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	if s := f.Section(".interp"); s != nil {
		b, err := s.Data()
		if err != nil {
			return nil, err
		}
		names = append(names, filepath.Base(string(b[:max(len(b)-1, 0)])))
	}
	return names, nil
}

func findLibrary(root, name string) (string, error) {
	for _, folder := range libraryFolders {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(filepath.Join(root, path)); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fs.ErrNotExist
}
