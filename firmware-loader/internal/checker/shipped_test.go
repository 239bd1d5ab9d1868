package checker_test

import (
	"testing"

	"pgregory.net/rapid"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// The images that we ship, and what is left of them after mutations, are judged by the
// kernel too.
func TestShippedImagesAgainstKernel(t *testing.T) {
	checks(t, 150)
	for _, name := range firmware.ShippedNames() {
		t.Run(name, func(t *testing.T) {
			spec, err := firmware.BuildShipped(name)
			if err != nil {
				t.Fatal(err)
			}
			k := newKernel(t, spec.Maps)
			for hook := range abi.Hooks {
				p, ok := spec.Program(hook)
				if !ok {
					continue
				}
				if _, err := checker.Check(p); err != nil {
					t.Fatal(err)
				}
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
