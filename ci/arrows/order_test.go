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

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// orders list the files of rooms from the bottom up, by the packages inside a room ("." is the room's own). An
// arrow is a file that uses an identifier which another file declares: a method, a field and an embedded type
// count. Between packages no arrow runs back up; within them at most so many do as most says. Lower it when fewer do.
var orders = []struct {
	room, order string
	most        int
	alone       bool // the room's own package, without those inside of it
}{
	// The kinds stand above the core, which asks for none of them; the engine joins them all.
	{"engine", `
internal/memory:
	mover.go
internal/core:
	clock.go doorbell.go endpoint.go interfaces.go pipeline.go hostbus.go frame.go reports.go fields_unsafe.go requests.go
	config.go direct.go sram.go regions.go layout.go near.go near_unsafe.go queue.go program.go channelbell.go kind.go dma.go core.go flow.go
	eager.go transmit.go outbox.go outgoing.go ending.go inbox.go receive.go path.go connect.go incoming.go steer.go
	completion.go lend.go borrow.go
internal/vi:
	window.go reliable.go bytes_unsafe.go transport.go path.go reliable_receive.go unreliable.go raw.go land.go
	receivequeue.go rdma.go recovery.go rdma_receive.go lossless.go short.go kinds.go send.go doors.go reliable_ending.go
internal/ring:
	ring.go
internal/channel:
	channelstate.go channelsend.go cellflow.go channelreceive.go cellwire.go channel.go
.:
	doc.go types.go engine.go processor.go step.go run.go movers.go objects.go dispatch.go
	admin.go ringer.go
`, 38, false},
	// The NIC is below what it has been asked for, of which it keeps tables: endpoints, completion queues, memory.
	{"driver", `
internal/dma:
	pages_unsafe.go space.go
internal/events:
	limiter.go queue.go
internal/pump:
	lane.go pump.go
.:
	doc.go errors.go ending.go policy.go signal.go address.go region.go blocks.go registers.go identity.go
	doorbell.go admin.go vector.go latency.go dmablock.go eager_attributes.go
	nic.go attributes.go remote.go bars.go health.go watch.go interrupts.go stats.go channel_levels.go
	leaving.go wait.go reset.go notices.go command.go program.go
	ptag.go endpoint.go connect.go dial.go listen.go memory_unsafe.go eager.go regions.go memory.go eager_room.go
	register.go cache.go eager_post.go policy_set.go policy_state.go transfers.go
	queue_state.go vi.go queue.go eager_tokens.go queue_take.go queue_end.go cq.go cq_ring.go
	queue_post.go cq_notify.go cq_create.go cq_resize.go vi_queues.go vi_create.go vi_attributes.go vi_calls.go
	peer.go receivequeue.go ring_queue.go ring.go channel.go
	events.go report.go telemetry.go close.go open.go
`, 8, false},
	// What both ends share, the server, the pool of servers, mapped memory, the client above all of them.
	{"netmem", `
.:
	errors.go options.go stats.go doc.go places_unsafe.go memory_limit.go fabric.go
	directory.go storage.go session.go server.go
	window.go line.go pool.go view.go repair.go members.go read.go write.go connect.go
	map_process.go mapping.go map.go
	host.go epoch.go cooperate.go cache.go client.go lodging.go writeback.go open.go load.go source.go
`, 5, true},
}

type fileArrow struct{ from, to string }

// TestOrder checks that the files of the rooms use those below them.
func TestOrder(t *testing.T) {
	for _, room := range orders {
		t.Run(room.room, func(t *testing.T) {
			t.Parallel()
			checkOrder(t, room.room, filesInOrder(room.order), room.most, room.alone)
		})
	}
}

// filesInOrder returns the paths of the files of an order within their room.
func filesInOrder(order string) (files []string) {
	folder := ""
	for _, f := range strings.Fields(order) {
		if name, ok := strings.CutSuffix(f, ":"); ok {
			folder = name
		} else {
			files = append(files, path.Join(folder, f))
		}
	}
	return files
}

func checkOrder(t *testing.T, room string, order []string, most int, alone bool) {
	arrows, files := arrowsWithin(t, room, alone)
	for _, f := range files {
		should.Hold(t, slices.Contains(order, f), "%s/%s has no place in the order", room, f)
	}
	for _, f := range order {
		should.Hold(t, slices.Contains(files, f), "the order has %s/%s, which is not there", room, f)
	}
	var up []fileArrow
	for a := range arrows {
		if slices.Index(order, a.to) > slices.Index(order, a.from) {
			up = append(up, a)
			should.Hold(t, path.Dir(a.from) == path.Dir(a.to), "%s/%s uses %s, of a package above it", room, a.from, a.to)
		}
	}
	t.Logf("%d files, %d arrows, %d back up", len(files), len(arrows), len(up))
	should.Hold(t, len(files) >= 20 && len(arrows) >= 100, "only %d files and %d arrows were found", len(files), len(arrows))
	if len(up) > most {
		slices.SortFunc(up, func(a, b fileArrow) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
		for _, a := range up {
			t.Errorf("%s/%s uses %s above it", room, a.from, a.to)
		}
		t.Errorf("%d arrows run back up, more than %d", len(up), most)
	}
}

// arrowsWithin type-checks the packages of a room, and returns the arrows between their
// files, by their paths within it, and the files; with alone those of the room's own package.
func arrowsWithin(t *testing.T, room string, alone bool) (map[fileArrow]bool, []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f",
		"{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{range .GoFiles}}{{.}} {{end}}", "./"+room+"/...")
	cmd.Dir = "../.."
	out := must.Get(cmd.Output())(t)
	fset := token.NewFileSet()
	exports, checked := map[string]string{}, map[string]*types.Package{}
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	root := must.Get(filepath.Abs("../../" + room))(t)
	place := func(at token.Pos) string {
		name, err := filepath.Rel(root, fset.Position(at).Filename)
		if err != nil || !filepath.IsLocal(name) {
			return "" // not of the room
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
		if f[0] != Module+"/"+room && (alone || !strings.HasPrefix(f[0], Module+"/"+room+"/")) {
			continue
		}
		var files []*ast.File
		for _, name := range strings.Fields(f[3]) {
			file := must.Get(parser.ParseFile(fset, filepath.Join(f[2], name), nil, 0))(t)
			files, names = append(files, file), append(names, place(file.Package))
		}
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
		p := must.Get((&types.Config{Importer: fromSource{compiled, checked}}).Check(f[0], fset, files, info))(t)
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
