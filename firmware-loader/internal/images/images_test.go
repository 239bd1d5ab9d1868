package images_test

import (
	"errors"
	"testing"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/images"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

func TestBuild(t *testing.T) {
	for _, name := range images.Names() {
		spec, err := firmware.BuildShipped(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := firmware.BuildShipped(name)
		if err != nil || again.Digest != spec.Digest {
			t.Errorf("%s: built twice, digests %x and %x, %v", name, spec.Digest, again.Digest, err)
		}
		if spec.Name != name || spec.Version == "" {
			t.Errorf("%s calls itself %q %q", name, spec.Name, spec.Version)
		}
		programs := 0
		for h := range abi.Hooks {
			p, ok := spec.Program(h)
			if !ok {
				continue
			}
			programs++
			report, err := checker.Check(p)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			t.Logf("%s %s: %d instructions, worst case %d, explored %d", name, h, report.Instructions, report.WorstCase, report.Explored)
		}
		if programs == 0 {
			t.Errorf("%s has no program", name)
		}
	}
	if _, err := firmware.BuildShipped("nonsense"); !errors.Is(err, images.ErrUnknown) {
		t.Errorf("got %v", err)
	}
}
