package arrows

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// TestRepository checks this repository.
func TestRepository(t *testing.T) {
	r := must.Get(Check(os.DirFS("../..")))(t)
	for _, v := range r.Violations {
		t.Error(v)
	}
	for _, p := range r.loneLeaves() {
		t.Error(p)
	}
	should.Hold(t, r.Files >= 20, "found only %d source files: is this the root of the module?", r.Files)
}

// TestRules checks the rules themselves on one file at a time.
func TestRules(t *testing.T) {
	imports := func(paths ...string) string {
		s := "package p\n"
		for _, p := range paths {
			s += "import _ \"" + p + "\"\n"
		}
		return s
	}
	ours := Module + "/"
	for _, tt := range []struct {
		name, file, source string
		want               string // part of the only violation; empty: none
	}{
		{"down", "driver/nic.go", imports(ours+"vfio", ours+"descriptors", ours+"internal/mmio"), ""},
		{"emulator to wire", "emulator/device.go", imports(ours + "wire"), ""},
		{"wire to emulator", "wire/udp.go", imports(ours + "emulator"), "not emulator"},
		{"own sub-package", "wire/udp.go", imports(ours + "wire/shm"), ""},
		{"sub-package uses the room's arrows", "wire/shm/port.go", imports(ours + "engine"), ""},
		{"a leaf", "vfio/region.go", imports(ours + "internal/mmio"), ""},
		{"a barrier below the data sheet", "descriptors/overlay.go", imports(ours + "internal/atomicmem"), ""},
		{"the barrier to the data sheet", "internal/atomicmem/x.go", imports(ours + "descriptors"), "imports none of our packages"},
		{"a part with arrows of its own", "driver/program.go", imports(ours + "firmware-loader/processor"), "not firmware-loader/processor"},
		{"the processor to the engine", "firmware-loader/processor/x.go", imports(ours + "engine"), ""},
		{"images to the engine", "firmware-loader/spec.go", imports(ours + "engine"), "not engine"},
		{"a leaf to a room", "internal/mmio/x.go", imports(ours + "vfio"), "imports none of our packages"},
		{"a library to what tests need", "conform/run.go", imports(ours + "ci/kit/leaktest"), "only tests import ci"},
		{"driver to emulator", "driver/nic.go", imports(ours + "emulator"), "driver may import pipeline, firmware-loader, vfio, descriptors, internal, not emulator"},
		{"driver to engine", "driver/nic.go", imports(ours + "engine"), "not engine"},
		{"emulator to driver", "wire/udp.go", imports(ours + "driver"), "not driver"},
		{"engine to pipeline", "engine/transmit.go", imports(ours + "engine/internal/memory"), ""},
		{"pipeline to descriptors", "pipeline/device.go", imports(ours + "descriptors"), "pipeline imports none of our packages"},
		{"images to descriptors", "firmware-loader/image.go", imports(ours + "descriptors"), ""},
		{"images to driver", "firmware-loader/image.go", imports(ours + "driver"), "firmware-loader may import descriptors, internal, not driver"},
		{"up", "vfio/device.go", imports(ours + "driver"), "vfio may import internal, not driver"},
		{"vfio to descriptors", "vfio/device.go", imports(ours + "descriptors"), "vfio may import internal, not descriptors"},
		{"engine to vfio", "engine/regions.go", imports(ours + "vfio"), "engine may import descriptors, pipeline, internal, not vfio"},
		{"tools join", "tools/trapeze/trapeze.go", imports(ours+"via", ours+"emulator"), ""},
		{"a program and its tool", "cmd/trapeze/main.go", imports(ours + "tools/trapeze"), ""},
		{"only tests import tools", "via/nic.go", imports(ours + "tools/trapeze"), "only tests import tools"},
		{"only tests import examples", "tools/trapeze/trapeze.go", imports(ours + "examples/hello"), "only tests import examples"},
		{"unknown room", "tools/trapeze/trapeze.go", imports(ours + "helpers"), "helpers is not a room"},
		{"code in an unknown room", "helpers/x.go", imports(ours + "vfio"), "helpers is not a room"},
		{"tests join", "driver/nic_test.go", imports(ours + "emulator"), ""},
		{"others' packages", "vfio/memory.go", imports("golang.org/x/sys/unix", "os"), ""},

		{"unsafe", "vfio/memory.go", imports("unsafe"), "unsafe belongs"},
		{"unsafe in its file", "vfio/memory_unsafe.go", imports("unsafe"), ""},
		{"unsafe by processor", "vfio/memory_unsafe_arm64.go", imports("unsafe"), ""},
		{"unsafe in a test", "vfio/memory_test.go", imports("unsafe"), "unsafe belongs"},
		{"unsafe in its test file", "vfio/memory_unsafe_test.go", imports("unsafe"), ""},

		{"panic", "via/nic.go", "package via\nfunc f() { panic(1) }\n", "does not panic"},
		{"panic in a variable", "via/nic.go", "package via\nvar f = func() { panic(1) }\n", "does not panic"},
		{"allowed panic", "vfio/address.go", "package vfio\nfunc Register() { panic(1) }\n", ""},
		{"panic in a test", "via/nic_test.go", "package via\nfunc f() { panic(1) }\n", ""},
		{"exit", "engine/step.go", "package engine\nimport \"os\"\nfunc f() { os.Exit(1) }\n", "os.Exit"},
		{"fatal", "engine/step.go", "package engine\nimport \"log\"\nfunc f() { log.Fatalf(\"x\") }\n", "log.Fatalf"},
		{"exit in a tool", "cmd/trapeze/main.go", "package main\nimport \"os\"\nfunc main() { os.Exit(1) }\n", ""},
		{"exit in a program of a room", "ethernet/nffgo/examples/firewall/main.go", "package main\nimport \"os\"\nfunc main() { os.Exit(1) }\n", ""},
		{"a method called Exit", "engine/step.go", "package engine\nfunc f(p interface{ Exit(int) }) { p.Exit(1) }\n", ""},

		{"600 lines", "via/nic.go", "package via\n" + strings.Repeat("\n", 599), ""},
		{"601 lines", "via/nic.go", "package via\n" + strings.Repeat("\n", 600), "601 lines"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := must.Get(Check(fstest.MapFS{tt.file: {Data: []byte(tt.source)}}))(t)
			switch {
			case tt.want == "" && len(r.Violations) > 0:
				t.Errorf("unexpected: %v", r.Violations)
			case tt.want != "" && (len(r.Violations) != 1 || !strings.Contains(r.Violations[0].String(), tt.want)):
				t.Errorf("got %v, want one violation that mentions %q", r.Violations, tt.want)
			}
		})
	}
}

// TestLoneLeaves: a leaf needs two rooms that use it, tests aside.
func TestLoneLeaves(t *testing.T) {
	leaf := &fstest.MapFile{Data: []byte("package mmio\n")}
	user := &fstest.MapFile{Data: []byte("package p\nimport _ \"" + Module + "/internal/mmio\"\n")}
	for _, tt := range []struct {
		name  string
		users []string
		lone  int
	}{
		{"unused", nil, 1},
		{"one room", []string{"driver/a.go", "driver/b.go"}, 1},
		{"a room and a test", []string{"driver/a.go", "vfio/b_test.go"}, 1},
		{"two rooms", []string{"driver/a.go", "ethernet/igb/b.go"}, 0},
	} {
		files := fstest.MapFS{"internal/mmio/mmio.go": leaf}
		for _, f := range tt.users {
			files[f] = user
		}
		r, err := Check(files)
		should.Hold(t, err == nil && len(r.Violations) == 0 && len(r.loneLeaves()) == tt.lone, "%s: %v, %v, %v", tt.name, r.loneLeaves(), r.Violations, err)
	}
}

func TestCheckSkipsWhatIsNotSource(t *testing.T) {
	bad := &fstest.MapFile{Data: []byte("this is not Go")}
	r, err := Check(fstest.MapFS{
		"via/testdata/x.go": bad, ".git/x.go": bad, "via/notes.txt": bad,
		"via/nic.go": {Data: []byte("package via\n")},
	})
	should.Hold(t, err == nil && len(r.Violations) == 0 && r.Files == 1, "got %+v, %v", r, err)
	if _, err := Check(fstest.MapFS{"via/nic.go": bad}); err == nil {
		t.Error("a file that cannot be parsed goes unnoticed")
	}
}
