package images_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/clangtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/images"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// eachBuild runs a test on the image that we ship, and on what the clang of this machine makes of its source
// if that is another.
func eachBuild(t *testing.T, name string, test func(*testing.T, *machine.Image)) {
	shipped := build(t, name)
	t.Run(name, func(t *testing.T) { test(t, run(t, shipped)) })
	t.Run(name+" compiled", func(t *testing.T) {
		if now := compile(t, name); now.Digest != shipped.Digest {
			test(t, run(t, now))
		}
	})
}

var compiled = map[string]*firmware.Spec{}

func compile(t *testing.T, name string) *firmware.Spec {
	t.Helper()
	if compiled[name] == nil {
		compiled[name] = clangtest.Spec(t, filepath.Join("c", name+".c"), "-O2", "-mcpu=v3")
	}
	return compiled[name]
}

// TestClangMakesWhatIsShipped compares the committed objects with their sources. Another clang than the one
// that made them may choose other instructions: then all else must be the same.
func TestClangMakesWhatIsShipped(t *testing.T) {
	version, err := exec.CommandContext(t.Context(), "clang", "--version").Output()
	exact := err == nil && bytes.Contains(version, []byte("clang version 14."))
	for _, name := range images.Names() {
		t.Run(name, func(t *testing.T) {
			now, shipped := compile(t, name), build(t, name)
			should.Hold(t, !exact || now.Digest == shipped.Digest, "its object is not what clang makes of its source: go generate")
			should.Hold(t, now.Name == shipped.Name && now.Version == shipped.Version && now.Device == shipped.Device,
				"its source calls itself %s %s for %#x, the object %s %s for %#x", now.Name, now.Version, now.Device, shipped.Name, shipped.Version, shipped.Device)
			should.Be(t, cmp.Diff(shipped.Maps, now.Maps), "", "maps (-object +source)")
			for h := range abi.Hooks {
				_, before := shipped.Program(h)
				_, after := now.Program(h)
				should.Hold(t, before == after, "%s: a program in the object is %v, in the source %v", h, before, after)
			}
		})
	}
}

// mapOf finds a map of an image by name.
func mapOf(t testing.TB, img *machine.Image, name string) *machine.Map {
	t.Helper()
	for _, m := range img.Maps {
		if m.Spec().Name == name {
			return m
		}
	}
	t.Fatalf("no map %s", name)
	return nil
}
