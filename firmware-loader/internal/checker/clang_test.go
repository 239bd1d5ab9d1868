package checker_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
)

// requireClang, if set, makes a missing clang a failure: CI installs one.
const requireClang = "TRAPEZE_REQUIRE_CLANG"

// compile builds an image from a C source with the clang of this machine.
func compile(t *testing.T, source string, flags ...string) *firmware.Spec {
	t.Helper()
	missing := func(why string) {
		if os.Getenv(requireClang) != "" {
			t.Fatalf("%s, and %s is set", why, requireClang)
		}
		t.Skip(why)
	}
	clang, err := exec.LookPath("clang")
	if err != nil {
		missing("clang is not installed")
	}
	object := filepath.Join(t.TempDir(), "object.o")
	arguments := append(flags, "-g", "-Wall", "-Werror", "-I../../../firmware-loader/internal/images/c", "-target", "bpf", "-c", source, "-o", object)
	text, err := exec.CommandContext(t.Context(), clang, arguments...).CombinedOutput()
	if bytes.Contains(text, []byte("No available targets")) || bytes.Contains(text, []byte("unable to create target")) {
		missing("this clang has no BPF target")
	}
	if err != nil {
		t.Fatalf("clang: %v\n%s", err, text)
	}
	b, err := firmware.ReadObject(object)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := firmware.Build(b, firmware.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// What people write in C is accepted as clang compiles it, for each generation of the
// machine; and by the kernel too. Where no clang is required, each source is compiled one way.
func TestFiltersOfClang(t *testing.T) {
	sources, err := filepath.Glob("testdata/filters/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	levels := [][]string{{"-O2", "-mcpu=v1"}, {"-O2", "-mcpu=v3"}, {"-Os", "-mcpu=v2"}}
	for i, source := range sources {
		chosen := levels
		if os.Getenv(requireClang) == "" {
			chosen = levels[i%len(levels):][:1]
		}
		for _, flags := range chosen {
			name := strings.TrimSuffix(filepath.Base(source), ".c") + " " + strings.Join(flags, " ")
			t.Run(name, func(t *testing.T) {
				spec := compile(t, source, flags...)
				for _, v := range spec.Check() {
					if v.Err != nil {
						t.Fatal(v.Err)
					}
					p, _ := spec.Program(v.Hook)
					t.Run("kernel", func(t *testing.T) {
						if k := newKernel(t, spec.Maps); k.load(p, false) != nil {
							t.Error(k.why(p))
						}
					})
				}
			})
		}
	}
}
