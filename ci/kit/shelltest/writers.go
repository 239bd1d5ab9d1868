package shelltest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// writes matches the usage of a flag for a file that a command writes.
var writes = regexp.MustCompile(`^file for|\b(write|store the file)\b`)

// Writer is a command with a flag that names a file to write.
type Writer struct {
	Command, Flag string
	// Args are its other arguments.
	Args []string
	// Quick says that it ends by itself, and soon.
	Quick bool
}

// TestNotReplaced checks that commands refuse a file that exists before their work begins, and
// replace it with --force.
func (p Program) TestNotReplaced(t *testing.T, writers []Writer) {
	for _, c := range writers {
		path := filepath.Join(t.TempDir(), "file")
		must.OK(t, os.WriteFile(path, []byte("mine"), 0o600))
		args := append(append(strings.Fields(c.Command), c.Args...), "--"+c.Flag, path)
		o := p.Run(t, args...)
		should.Hold(t, o.Code == exitFailure && o.Stdout == "" && strings.HasPrefix(o.Stderr, p.Name+": --"+c.Flag+": ") &&
			strings.Contains(o.Stderr, "file already exists (choose another name, or replace it with --force)"), "%v: %+v", args, o)
		if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
			t.Errorf("%v: the file holds %.20q, %v", args, b, err)
		}
		if !c.Quick {
			continue
		}
		if o := p.Run(t, append(args, "--force")...); o.Code != exitOK {
			t.Errorf("%v --force: %+v", args, o)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) == "mine" {
			t.Errorf("%v --force: the file holds %.20q, %v", args, b, err)
		}
	}
}

// TestWriters checks that no command writes files but those of the list, and that all of these have
// --force.
func (p Program) TestWriters(t *testing.T, list []Writer) {
	p.Tree(t, func(path []string, d Described) {
		command, force := strings.Join(path, " "), false
		for _, f := range d.Flags {
			force = force || f.Name == "force" && f.Usage == "replace a file that exists"
		}
		for _, f := range d.Flags {
			is := slices.ContainsFunc(list, func(w Writer) bool { return w.Command == command && w.Flag == f.Name })
			if is != (writes.MatchString(f.Usage) && strings.Contains(f.Usage, "file")) {
				t.Errorf("%s --%s %q: in the list %v", command, f.Name, f.Usage, is)
			}
			if is && !force {
				t.Errorf("%s has --%s and no --force", command, f.Name)
			}
		}
	})
}
