package arrows

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the module.
const Module = "github.com/trapeze-nic/trapeze"

// maxLines is the length of the longest source file that we read gladly.
const maxLines = 600

// Violation is one breach of a rule.
type Violation struct {
	File string // inside the module, slash-separated
	Line int    // from 1; zero if it is about the whole file
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("%s:%d: %s", v.File, v.Line, v.Text) }

// Report is what Check found.
type Report struct {
	Files      int // source files looked at
	Violations []Violation
	// Leaves has the rooms that import each package of the leaves.
	Leaves map[string]map[string]bool
}

// loneLeaves lists the leaves that no two rooms use.
func (r *Report) loneLeaves() (problems []string) {
	for _, leaf := range slices.Sorted(maps.Keys(r.Leaves)) {
		if users := slices.Sorted(maps.Keys(r.Leaves[leaf])); len(users) < 2 {
			problems = append(problems, fmt.Sprintf("%s is used by %v alone: what one room needs stands in its own internal folder", leaf, users))
		}
	}
	return problems
}

// uses notes that a room imports a leaf; an empty room, that the leaf is there.
func (r *Report) uses(room, leaf string) {
	if r.Leaves[leaf] == nil {
		r.Leaves[leaf] = map[string]bool{}
	}
	if room != "" {
		r.Leaves[leaf][room] = true
	}
}

// Check looks at every Go file of the module in root. It fails only if a file
// cannot be read or parsed.
func Check(root fs.FS) (Report, error) {
	r := Report{Leaves: map[string]map[string]bool{}}
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != "." && (strings.HasPrefix(name, ".") || name == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(p) != ".go" {
			return nil
		}
		src, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		r.Files++
		return r.checkFile(p, src)
	})
	return r, err
}

// unsafeName is how files may be called that import unsafe.
var unsafeName = regexp.MustCompile(`_unsafe(_(amd64|arm64|linux))?(_test)?\.go$`)

func (r *Report) checkFile(name string, src []byte) error {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	report := func(pos token.Pos, format string, args ...any) {
		r.Violations = append(r.Violations, Violation{name, fset.Position(pos).Line, fmt.Sprintf(format, args...)})
	}
	if n := bytes.Count(src, []byte("\n")); n > maxLines {
		r.Violations = append(r.Violations, Violation{name, n, fmt.Sprintf("%d lines are more than %d", n, maxLines)})
	}

	room, test := roomOf(name), strings.HasSuffix(name, "_test.go")
	if room == leaves {
		r.uses("", path.Dir(name))
	}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if imported == "unsafe" && !unsafeName.MatchString(name) {
			report(spec.Pos(), "unsafe belongs into a file called *_unsafe.go")
		}
		inside, ours := strings.CutPrefix(imported, Module+"/")
		if !ours || test {
			continue
		}
		if roomOf(inside) == leaves {
			r.uses(room, inside)
		}
		if why := checkImport(room, roomOf(inside)); why != "" {
			report(spec.Pos(), "%s", why)
		}
	}
	if !test && !isJoiner(room) && f.Name.Name != "main" {
		checkExits(f, room, report)
	}
	return nil
}

// allowedPanics are the functions that may panic, because only a mistake in a
// program, and no input, can make them.
var allowedPanics = map[string]bool{
	"vfio.Register":           true, // two packages claim one address scheme
	"internal.Catch":          true, // passes panics on that are not its own
	"internal.mistake":        true, // the help or the tags of a command are wrong
	"ethernet.Register":       true, // two packages claim one PCI function
	"ethernet.RegisterScheme": true,
}

// exits are functions that end the process, by package name. Prefixes end in a
// star.
var exits = map[string][]string{
	"os":      {"Exit"},
	"syscall": {"Exit"},
	"unix":    {"Exit"},
	"log":     {"Fatal*", "Panic*"},
}

// checkExits finds calls in a library that end the process.
func checkExits(f *ast.File, room string, report func(token.Pos, string, ...any)) {
	for _, decl := range f.Decls {
		where := room
		if fn, ok := decl.(*ast.FuncDecl); ok {
			where = room + "." + fn.Name.Name
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				if fun.Name == "panic" && !allowedPanics[where] {
					report(call.Pos(), "a library does not panic")
				}
			case *ast.SelectorExpr:
				pkg, ok := fun.X.(*ast.Ident)
				if ok && ends(pkg.Name, fun.Sel.Name) {
					report(call.Pos(), "a library does not call %s.%s", pkg.Name, fun.Sel.Name)
				}
			}
			return true
		})
	}
}

func ends(pkg, name string) bool {
	for _, e := range exits[pkg] {
		if prefix, ok := strings.CutSuffix(e, "*"); e == name || ok && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
