// Package walk checks the walk of a message in docs/walks.md: that what it names is
// there, that a message passes it, and that it leaves out nothing but short functions.
package walk

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
)

const (
	root   = "../../"
	module = "github.com/trapeze-nic/trapeze/"

	// long is from how many lines on a function that every message passes is named by
	// the walk. Shorter ones are read where they are called.
	long = 10
	// A reader follows a message in half an hour.
	maxNamed, maxNamedFiles = 30, 10
)

// ceilings are how many functions, in how many files, each operation passes at most, accessors
// of one line included. Lower them when there are fewer.
var ceilings = map[string]ceiling{
	"vi": {54, 24}, "conn": {66, 24}, "ring": {76, 27}, "page": {223, 65},
}

type ceiling struct{ functions, files int }

// measured are the packages in which a message is followed.
var measured = []string{"descriptors", "internal/datasheet", "driver/...", "emulator", "engine/...", "pipeline", "vfio/...", "via", "ring", "netmem/...", "wire/...", "ci/walk/operation"}

// besides are functions that read the clock, and those of the admin queue. How often these run is a question
// of the time between two polls, and of how waits and listeners take turns.
var besides = regexp.MustCompile(`^(engine/internal/core/clock|emulator/options|driver/admin|driver/command)\.go|AdminEntry|PhaseOf`)

// function is a function or method, "Type.Method", in a file of this module.
type function struct{ file, name string }

func (f function) String() string { return f.file + " " + f.name }

func TestWalk(t *testing.T) {
	soak.NeedBuilds(t)
	text := must.Get(os.ReadFile(root + "docs/walks.md"))(t)
	named := must.Get(readWalk(string(text)))(t)
	binary := build(t)
	// The path of the tool: "go tool" takes longer to find it than it runs.
	covdata := strings.TrimSpace(run(t, "go", "tool", "-n", "covdata"))
	each, all := passed(t, binary, covdata, "vi")
	some := covered(run(t, covdata, "func", "-i="+each))
	for f := range named {
		switch {
		case linesOf(t, f) == 0:
			t.Errorf("%s: the walk names it, but it is not there", f)
		case !some[f]:
			t.Errorf("%s: the walk names it, but no message passes it", f)
		}
	}
	for f := range all {
		if n := linesOf(t, f); n >= long && !named[f] {
			t.Errorf("%s: every message passes it, and it has %d lines, but the walk does not name it", f, n)
		}
	}
	t.Logf("the walk names %d functions in %d files", len(named), files(named))
	if len(named) > maxNamed || files(named) > maxNamedFiles {
		t.Errorf("the walk names %d functions in %d files, more than %d in %d", len(named), files(named), maxNamed, maxNamedFiles)
	}
	for operation, most := range ceilings {
		all := all
		if operation != "vi" { // which was followed above
			_, all = passed(t, binary, covdata, operation)
		}
		t.Logf("%s passes %d functions in %d files", operation, len(all), files(all))
		if len(all) > most.functions || files(all) > most.files {
			t.Errorf("%s passes %d functions in %d files, more than %d in %d", operation, len(all), files(all), most.functions, most.files)
		}
	}
}

// TestReadWalk checks the parser of the table.
func TestReadWalk(t *testing.T) {
	const table = "## The life of a message\n| File | Functions | |\n|---|---|---|\n| `a/b.go` | `T.m`, `f` | x `y` |\n| `a/c.go` | `f` | |\n## Next\n| `a/d.go` | `g` | |\n"
	got, err := readWalk(table)
	if want := 3; err != nil || len(got) != want || !got[function{"a/b.go", "T.m"}] || !got[function{"a/b.go", "f"}] || !got[function{"a/c.go", "f"}] {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "## The life of a message\n", "## The life of a message\n| `a/b.go` | f | |\n"} {
		if got, err := readWalk(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

var (
	row    = regexp.MustCompile("(?m)^\\| `([^`]+\\.go)` \\| ([^|]*) \\|")
	quoted = regexp.MustCompile("`([^`]+)`")
)

// readWalk reads the table of the section "The life of a message": rows of a file and
// the functions that are passed in it.
func readWalk(text string) (map[function]bool, error) {
	_, section, _ := strings.Cut(text, "\n## The life of a message\n")
	if s, ok := strings.CutPrefix(text, "## The life of a message\n"); ok {
		section = s
	}
	section, _, _ = strings.Cut(section, "\n## ")
	named := map[function]bool{}
	for _, r := range row.FindAllStringSubmatch(section, -1) {
		names := quoted.FindAllStringSubmatch(r[2], -1)
		if len(names) == 0 {
			return nil, fmt.Errorf("the row of %s names no function", r[1])
		}
		for _, n := range names {
			named[function{r[1], n[1]}] = true
		}
	}
	if len(named) == 0 {
		return nil, fmt.Errorf("docs/walks.md has no walk")
	}
	return named, nil
}

func files(set map[function]bool) int {
	seen := map[string]bool{}
	for f := range set {
		seen[f.file] = true
	}
	return len(seen)
}

// linesOf is how many lines a function has, zero if there is none.
func linesOf(t *testing.T, f function) int {
	t.Helper()
	fset := token.NewFileSet()
	parsed := must.Get(parser.ParseFile(fset, root+f.file, nil, 0))(t)
	for _, d := range parsed.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && nameOf(d) == f.name {
			return fset.Position(d.End()).Line - fset.Position(d.Pos()).Line + 1
		}
	}
	return 0
}

func nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "." + d.Name.Name
	}
	return d.Name.Name
}

// build builds the program that runs operations, and counts.
func build(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "operation")
	packages := make([]string, len(measured))
	for i, p := range measured {
		packages[i] = module + p
	}
	run(t, "go", "build", "-cover", "-covermode=atomic", "-coverpkg="+strings.Join(packages, ","), "-o", binary, "./operation")
	return binary
}

// passed returns the lists of counters of several runs of an operation, and the functions that all of these pass.
func passed(t *testing.T, binary, covdata, operation string) (each string, all map[function]bool) {
	t.Helper()
	dir := t.TempDir()
	counters, common := filepath.Join(dir, "counters"), filepath.Join(dir, "common")
	for _, d := range []string{counters, common} {
		must.OK(t, os.Mkdir(d, 0o755))
	}
	run(t, binary, operation, counters)
	list, err := filepath.Glob(counters + "/*")
	must.Hold(t, err == nil && len(list) != 0, "no counters: %v", err)
	each = strings.Join(list, ",")
	run(t, covdata, "intersect", "-i="+each, "-o="+common)
	all = covered(run(t, covdata, "func", "-i="+common))
	for f := range all {
		if besides.MatchString(f.String()) {
			delete(all, f)
		}
	}
	return each, all
}

// covered reads the functions of this module that were run from what "covdata func"
// says, in lines like "PATH/FILE.go:12: *Type.Method 80.0%". This package's do not
// count.
func covered(list string) map[function]bool {
	set := map[function]bool{}
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] == "0.0%" || !strings.HasPrefix(f[0], module) || strings.Contains(f[0], "ci/walk/") {
			continue
		}
		file, _, _ := strings.Cut(strings.TrimPrefix(f[0], module), ":")
		set[function{file, strings.TrimPrefix(f[1], "*")}] = true
	}
	return set
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	must.OK(t, err, "%s %s %s", name, strings.Join(args, " "), stderr.String())
	return string(out)
}
