package arrows

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// root is the folder of the main module.
const root = "../.."

// mostExported is the ceiling of exported names. It falls when names go, and rises with a new ability alone.
const mostExported = 1634

// TestExported counts the names that users of the main module see: constants, variables,
// functions, types, and methods of exported types, in packages outside of internal folders.
// Fields do not count.
func TestExported(t *testing.T) {
	rooms, all := map[string]int{}, 0
	must.OK(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if d.IsDir() {
			if path != root && (hidden(d.Name()) || ownModule(path)) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		n, err := exportedIn(path)
		room, _, _ := strings.Cut(name, "/")
		rooms[room], all = rooms[room]+n, all+n
		return err
	}))
	t.Logf("%d exported names: %v", all, rooms)
	should.Hold(t, all <= mostExported, "%d exported names, at most %d: what only its own package uses is not exported", all, mostExported)
}

// hidden reports whether users cannot import what is below a folder of this name.
func hidden(name string) bool {
	return name == "internal" || name == "testdata" || name == "ci" || name == "tools" || strings.HasPrefix(name, ".")
}

func ownModule(folder string) bool {
	found, _ := filepath.Glob(filepath.Join(folder, "go.mod"))
	return len(found) > 0
}

// exportedIn counts the exported names of a file, none of a program.
func exportedIn(path string) (n int, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil || f.Name.Name == "main" {
		return 0, err
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
				n++
			}
		case *ast.GenDecl:
			n += exportedSpecs(d)
		}
	}
	return n, nil
}

func exportedSpecs(d *ast.GenDecl) (n int) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				n++
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() {
					n++
				}
			}
		}
	}
	return n
}

// receiver is the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
