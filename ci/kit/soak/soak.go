// Package soak says whether this run of the tests is a long one. The step soak of .ci/scheduled is; go
// test ./... takes the samples that a change needs before it is sent.
package soak

import "os"

// Variable is what is set in the environment of a long run.
const Variable = "TRAPEZE_SOAK"

// Wanted says whether the cases that go test ./... leaves out are to run, however long they take.
func Wanted() bool { return os.Getenv(Variable) != "" }

// Sample returns the part of all that go test ./... takes for the i-th of several subjects: each
// n-th element, so that n subjects in a row take all of them together. A long run takes the others.
func Sample[S ~[]E, E any](all S, i, n int) (part S) {
	for j, e := range all {
		if ((i+j)%n == 0) != Wanted() {
			part = append(part, e)
		}
	}
	return part
}
