package arrows

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
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
}

// Check looks at every Go file of the module in root. It fails only if a file
// cannot be read or parsed.
func Check(root fs.FS) (Report, error) {
	var r Report
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
		v, err := checkFile(p, src)
		r.Violations = append(r.Violations, v...)
		return err
	})
	return r, err
}

// unsafeName is how files may be called that import unsafe.
var unsafeName = regexp.MustCompile(`_unsafe(_(amd64|arm64|linux))?(_test)?\.go$`)

func checkFile(name string, src []byte) ([]Violation, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []Violation
	report := func(pos token.Pos, format string, args ...any) {
		found = append(found, Violation{name, fset.Position(pos).Line, fmt.Sprintf(format, args...)})
	}
	if n := bytes.Count(src, []byte("\n")); n > maxLines {
		found = append(found, Violation{name, n, fmt.Sprintf("%d lines are more than %d", n, maxLines)})
	}

	room, test := roomOf(name), strings.HasSuffix(name, "_test.go")
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return found, err
		}
		if imported == "unsafe" && !unsafeName.MatchString(name) {
			report(spec.Pos(), "unsafe belongs into a file called *_unsafe.go")
		}
		inside, ours := strings.CutPrefix(imported, Module+"/")
		if !ours || test {
			continue
		}
		if why := checkImport(room, roomOf(inside)); why != "" {
			report(spec.Pos(), "%s", why)
		}
	}
	if !test && !isJoiner(room) && f.Name.Name != "main" {
		checkExits(f, room, report)
	}
	return found, nil
}

// allowedPanics are the functions that may panic, because only a mistake in a
// program, and no input, can make them.
var allowedPanics = map[string]bool{
	"vfio.Register":           true, // two packages claim one address scheme
	"vfio.Catch":              true, // passes panics on that are not its own
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
