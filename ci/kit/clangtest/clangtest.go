// Package clangtest compiles control programs in C for tests.
package clangtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
)

// Variable, if it is set in the environment, makes a missing clang a failure: CI installs one.
const Variable = "TRAPEZE_REQUIRE_CLANG"

// Required reports whether the tests need a clang.
func Required() bool { return os.Getenv(Variable) != "" }

// Object compiles a C source with the clang of this machine, and skips the test where none has a BPF
// target. Warnings are errors.
func Object(t *testing.T, source string, flags ...string) []byte {
	t.Helper()
	missing := func(why string) {
		must.Hold(t, !Required(), "%s, and %s is set", why, Variable)
		t.Skip(why)
	}
	clang, err := exec.LookPath("clang")
	if err != nil {
		missing("clang is not installed")
	}
	object := filepath.Join(t.TempDir(), "object.o")
	args := append(flags, "-Wall", "-Werror", "-c", source, "-o", object)
	text, err := exec.CommandContext(t.Context(), clang, args...).CombinedOutput()
	if bytes.Contains(text, []byte("No available targets")) || bytes.Contains(text, []byte("unable to create target")) {
		missing("this clang has no BPF target")
	}
	must.OK(t, err, "clang %s", text)
	return must.Get(firmware.ReadObject(object))(t)
}

// Spec builds an image from a C source, with debug information.
func Spec(t *testing.T, source string, flags ...string) *firmware.Spec {
	t.Helper()
	return must.Get(firmware.Build(Object(t, source, append(flags, "-g", "-target", "bpf")...), firmware.Meta{}))(t)
}
