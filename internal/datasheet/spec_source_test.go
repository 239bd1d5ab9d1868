package datasheet_test

import (
	"go/ast"
	"go/build"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// declaration is an exported constant of the package as the compiler sees it.
type declaration struct {
	name string
	typ  string // name of its type, empty if untyped or predeclared
	// value is its number, or its text if it is a string.
	value constant.Value
}

// source is what the package declares.
type source struct {
	constants map[string]declaration
	layouts   []string // names of structs that start with structs.HostLayout
}

// loadSource reads the package in the current directory, without its tests. It
// compiles the standard library's part of it too, so once is enough.
var loadSource = sync.OnceValues(readSource)

func readSource() (*source, error) {
	fset := token.NewFileSet()
	entries, err := os.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
	}
	// A test that is compiled with -trimpath does not know where Go is.
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	build.Default.GOROOT = strings.TrimSpace(string(root))
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	pkg, err := conf.Check("datasheet", fset, files, nil)
	if err != nil {
		return nil, err
	}
	s := &source{constants: map[string]declaration{}}
	for _, name := range pkg.Scope().Names() {
		switch o := pkg.Scope().Lookup(name).(type) {
		case *types.Const:
			if !o.Exported() {
				continue
			}
			d := declaration{name: name, value: o.Val()}
			if n, ok := o.Type().(*types.Named); ok {
				d.typ = n.Obj().Name()
			}
			s.constants[name] = d
		case *types.TypeName:
			if t, ok := o.Type().Underlying().(*types.Struct); ok && t.NumFields() > 0 &&
				t.Field(0).Type().String() == "structs.HostLayout" {
				s.layouts = append(s.layouts, name)
			}
		}
	}
	slices.Sort(s.layouts)
	return s, nil
}
