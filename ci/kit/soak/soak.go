// Package soak says whether this run of the tests is a long one. The step soak of .ci/scheduled is; go
// test ./... takes the samples that a change needs before it is sent.
package soak

import (
	"os"
	"testing"
)

// Variable is set in the environment of a long run.
const Variable = "TRAPEZE_SOAK"

// Wanted says whether the cases that go test ./... leaves out are to run, however long they take.
func Wanted() bool { return os.Getenv(Variable) != "" }

// Count returns how many rounds a test makes: sample in go test ./..., whole in a long run.
func Count(sample, whole int) int {
	if Wanted() {
		return whole
	}
	return sample
}

// Builds is set in the environment where tests may build programs of their own, which takes longer than most tests.
const Builds = "TRAPEZE_BUILDS"

// NeedBuilds skips a test that builds programs to look at them, unless it is a step of .ci/run.
func NeedBuilds(t *testing.T) {
	t.Helper()
	if os.Getenv(Builds) == "" {
		t.Skip("it builds programs to look at them, which takes long: .ci/run disasm runs it, with " + Builds + " set")
	}
}
