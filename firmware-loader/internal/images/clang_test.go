package images_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
)

// requireClang, if set, makes a missing clang a failure: CI installs one.
const requireClang = "TRAPEZE_REQUIRE_CLANG"

// eachBuild runs a test on the image that we ship and on what clang makes of its C
// source.
func eachBuild(t *testing.T, name string, test func(*testing.T, *machine.Image)) {
	t.Run(name, func(t *testing.T) { test(t, boot(t, name)) })
	t.Run(name+" in C", func(t *testing.T) { test(t, run(t, compile(t, name))) })
}

// compile builds an image from its C source.
func compile(t *testing.T, name string) *firmware.Spec {
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
	object := filepath.Join(t.TempDir(), "program.o")
	text, err := exec.CommandContext(t.Context(), clang, "-O2", "-g", "-Wall", "-Werror", "-target", "bpf",
		"-c", filepath.Join("c", name+".c"), "-o", object).CombinedOutput()
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
