package checker_test

import (
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/clangtest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// What people write in C is accepted as clang compiles it, for each generation of the
// machine; and by the kernel too. Where no clang is required, each source is compiled one way.
func TestFiltersOfClang(t *testing.T) {
	sources, err := filepath.Glob("testdata/filters/*.c")
	must.Hold(t, err == nil && len(sources) != 0, "%v, %v", sources, err)
	levels := [][]string{{"-O2", "-mcpu=v1"}, {"-O2", "-mcpu=v3"}, {"-Os", "-mcpu=v2"}}
	for i, source := range sources {
		chosen := levels
		if !clangtest.Required() {
			chosen = levels[i%len(levels):][:1]
		}
		for _, flags := range chosen {
			name := strings.TrimSuffix(filepath.Base(source), ".c") + " " + strings.Join(flags, " ")
			t.Run(name, func(t *testing.T) {
				spec := clangtest.Spec(t, source, append(flags, "-I../images/c")...)
				for _, v := range spec.Check() {
					must.OK(t, v.Err)
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

// The images that we ship, and what is left of them after mutations, are judged by the
// kernel too.
func TestShippedImagesAgainstKernel(t *testing.T) {
	checks(t, 150)
	for _, name := range firmware.ShippedNames() {
		t.Run(name, func(t *testing.T) {
			spec := must.Get(firmware.BuildShipped(name))(t)
			k := newKernel(t, spec.Maps)
			for hook := range abi.Hooks {
				p, ok := spec.Program(hook)
				if !ok {
					continue
				}
				must.Get(checker.Check(p))(t)
				if k.load(p, false) != nil {
					t.Fatalf("the kernel refuses it: %s", k.why(p))
				}
				original := toSteps(p.Instructions)
				counts := newTally()
				rapid.Check(t, func(t *rapid.T) {
					counts.compare(t, k, linkSteps(p.Hook, p.Maps, mutate(t, original)))
				})
				counts.report(t, 20)
			}
		})
	}
}
