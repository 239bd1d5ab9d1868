package checker_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/clangtest"
)

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
		if !clangtest.Required() {
			chosen = levels[i%len(levels):][:1]
		}
		for _, flags := range chosen {
			name := strings.TrimSuffix(filepath.Base(source), ".c") + " " + strings.Join(flags, " ")
			t.Run(name, func(t *testing.T) {
				spec := clangtest.Spec(t, source, append(flags, "-I../images/c")...)
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
