package arrows

import (
	"cmp"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// engineOrder lists the packages of the engine from the bottom up, and the files of each. An arrow is
// a file that uses an identifier which another file declares: a method, a field and an embedded type
// count. The kinds stand above the core, which asks for none of them; the engine joins them all.
const engineOrder = `
internal/memory:
	mover.go
internal/core:
	clock.go doorbell.go endpoint.go interfaces.go pipeline.go frame.go reports.go fields_unsafe.go requests.go
	config.go direct.go regions.go layout.go near.go near_unsafe.go queue.go program.go channelbell.go kind.go dma.go core.go flow.go
	outgoing.go sram.go eager.go transmit.go ending.go receive.go path.go connect.go incoming.go steer.go
	completion.go lend.go borrow.go
internal/vi:
	window.go reliable.go bytes_unsafe.go transport.go path.go reliable_receive.go unreliable.go raw.go land.go
	receivequeue.go rdma.go recovery.go rdma_receive.go lossless.go short.go kinds.go send.go doors.go reliable_ending.go
internal/ring:
	ring.go
internal/channel:
	channelstate.go channelsend.go cellflow.go channelreceive.go cellwire.go channel.go
engine:
	doc.go types.go engine.go processor.go step.go run.go movers.go objects.go dispatch.go
	admin.go ringer.go
`

// engineBackUp limits the arrows of the engine that run against that order. Lower it when
// there are fewer.
const engineBackUp = 38

type fileArrow struct{ from, to string }

// TestEngineOrder checks that the files of the engine use those below them.
func TestEngineOrder(t *testing.T) {
	arrows, files := engineArrows(t)
	var order []string
	folder := ""
	for _, f := range strings.Fields(engineOrder) {
		if name, ok := strings.CutSuffix(f, ":"); ok {
			folder = strings.TrimPrefix(name, "engine")
		} else {
			order = append(order, path.Join(folder, f))
		}
	}
	for _, f := range files {
		if !slices.Contains(order, f) {
			t.Errorf("engine/%s has no place in engineOrder", f)
		}
	}
	for _, f := range order {
		if !slices.Contains(files, f) {
			t.Errorf("engineOrder has engine/%s, which is not there", f)
		}
	}
	var up []fileArrow
	for a := range arrows {
		if slices.Index(order, a.to) > slices.Index(order, a.from) {
			if up = append(up, a); path.Dir(a.from) != path.Dir(a.to) {
				t.Errorf("engine/%s uses engine/%s, of a package above it", a.from, a.to)
			}
		}
	}
	t.Logf("%d files, %d arrows, %d back up", len(files), len(arrows), len(up))
	if len(files) < 20 || len(arrows) < 100 {
		t.Errorf("only %d files and %d arrows were found", len(files), len(arrows))
	}
	if len(up) > engineBackUp {
		slices.SortFunc(up, func(a, b fileArrow) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
		for _, a := range up {
			t.Errorf("engine/%s uses engine/%s above it", a.from, a.to)
		}
		t.Errorf("%d arrows run back up, more than %d", len(up), engineBackUp)
	}
}

// engineArrows type-checks the packages of the engine, and returns the arrows between their
// files, by their paths from the engine on.
func engineArrows(t *testing.T) (map[fileArrow]bool, []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f",
		"{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{range .GoFiles}}{{.}} {{end}}", "./engine/...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	exports, checked := map[string]string{}, map[string]*types.Package{}
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	root, err := filepath.Abs("../../engine")
	if err != nil {
		t.Fatal(err)
	}
	place := func(at token.Pos) string {
		name, err := filepath.Rel(root, fset.Position(at).Filename)
		if err != nil || !filepath.IsLocal(name) {
			return "" // not of the engine
		}
		return filepath.ToSlash(name)
	}
	arrows := map[fileArrow]bool{}
	var names []string
	for line := range strings.Lines(string(out)) { // what a package imports comes before it
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) > 1 {
			exports[f[0]] = f[1]
		}
		if f[0] != Module+"/engine" && !strings.HasPrefix(f[0], Module+"/engine/") {
			continue
		}
		var files []*ast.File
		for _, name := range strings.Fields(f[3]) {
			file, err := parser.ParseFile(fset, filepath.Join(f[2], name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files, names = append(files, file), append(names, place(file.Package))
		}
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
		p, err := (&types.Config{Importer: fromSource{compiled, checked}}).Check(f[0], fset, files, info)
		if err != nil {
			t.Fatal(err)
		}
		checked[f[0]] = p
		for use, object := range info.Uses {
			if _, imported := object.(*types.PkgName); imported || !object.Pos().IsValid() {
				continue
			}
			if a := (fileArrow{place(use.Pos()), place(object.Pos())}); a.from != a.to && a.to != "" {
				arrows[a] = true
			}
		}
	}
	return arrows, names
}

// fromSource imports packages that were type-checked here, so that what they declare has its
// place, and others from what the compiler has made.
type fromSource struct {
	types.Importer
	checked map[string]*types.Package
}

func (i fromSource) Import(path string) (*types.Package, error) {
	if p := i.checked[path]; p != nil {
		return p, nil
	}
	return i.Importer.Import(path)
}
