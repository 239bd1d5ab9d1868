// Package programtest builds the project's programs for the tests that run them, once for all packages.
package programtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// longest limits the wait for another build of the same programs.
const longest = 10 * time.Minute

// Build returns a new folder with programs of that name below tools, as .ci/release compiles them. The
// caller removes it. Programs stay in the user's cache, where go build links only what has changed.
func Build(programs ...string) (folder string, err error) {
	root, err := run("", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/trapeze-nic/trapeze")
	if err != nil {
		return "", err
	}
	if err := readSources(root); err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "trapeze", "programs", fmt.Sprintf("%x", sha256.Sum256([]byte(root)))[:16])
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	lock := flock.New(filepath.Join(cache, "lock"))
	if _, err := lock.TryLockContext(ctx, 2*time.Millisecond); err != nil {
		return "", fmt.Errorf("%s: %w", lock.Path(), err)
	}
	defer lock.Close()
	if folder, err = os.MkdirTemp("", "trapeze-programs-"); err != nil {
		return "", err
	}
	for _, name := range programs {
		if err := build(root, filepath.Join(cache, name), filepath.Join(folder, name)); err != nil {
			_ = os.RemoveAll(folder) // what went wrong before says more
			return "", err
		}
	}
	return folder, nil
}

// build brings a program in the cache up to date, and gives it a second name, or copies it to another file
// system. Go build puts another program in its place, and never writes into one that a test may run.
func build(root, cached, program string) error {
	if _, err := run(root, "go", "build", "-buildvcs=false", "-pgo=auto", "-trimpath", "-o", cached, "./tools/"+filepath.Base(cached)); err != nil {
		return err
	}
	if os.Link(cached, program) == nil {
		return nil
	}
	text, err := os.ReadFile(cached)
	if err != nil {
		return err
	}
	return os.WriteFile(program, text, 0o755)
}

// run returns what a command prints, without the line's end.
func run(folder string, command ...string) (string, error) {
	c := exec.Command(command[0], command[1:]...)
	c.Dir, c.Env = folder, append(os.Environ(), "CGO_ENABLED=0")
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

// readSources opens every source file of the module. The programs are built without the knowledge of go test,
// which would otherwise repeat an old result after a change: it remembers which files a test has opened.
func readSources(root string) error {
	return fs.WalkDir(os.DirFS(root), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if p != "." && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return err
		}
		switch filepath.Ext(p) {
		case ".go", ".s", ".mod", ".sum", ".pgo":
			_, err = os.ReadFile(filepath.Join(root, p))
		}
		return err
	})
}
