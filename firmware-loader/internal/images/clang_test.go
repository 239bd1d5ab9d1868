package images_test

import (
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/clangtest"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
)

// eachBuild runs a test on the image that we ship and on what clang makes of its C
// source.
func eachBuild(t *testing.T, name string, test func(*testing.T, *machine.Image)) {
	t.Run(name, func(t *testing.T) { test(t, boot(t, name)) })
	t.Run(name+" in C", func(t *testing.T) { test(t, run(t, compile(t, name))) })
}

// compile builds an image from its C source.
func compile(t *testing.T, name string) *firmware.Spec {
	t.Helper()
	spec := clangtest.Spec(t, filepath.Join("c", name+".c"), "-O2")
	if spec.Name != name {
		t.Errorf("the source of %s calls itself %s", name, spec.Name)
	}
	return spec
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
