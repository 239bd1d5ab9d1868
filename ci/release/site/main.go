// Command site makes static HTML of this repository's documents, with a search that needs no
// network. It fails if a link between its pages leads nowhere.
//
//	cd ci/release && go run ./site --output DIR
//
// DIR must not exist. Its pages work from a server and from a disk.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

func main() {
	folder := flag.String("repository", "../..", "`folder` of the repository")
	output := flag.String("output", "", "`folder` to make and fill")
	flag.Parse()
	if err := run(*folder, *output); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// run makes the site of the repository in folder.
func run(folder, output string) error {
	if output == "" {
		return errors.New("call it with --output DIR")
	}
	if _, err := os.Stat(output); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--output %s is there already", output)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	s := &site{sources: root.FS(), files: map[string][]byte{}}
	if err := s.make(); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	for name, content := range s.files {
		path := filepath.Join(output, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
