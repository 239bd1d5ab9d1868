package viatest

import (
	"context"
	"testing"
)

// T is what a check needs of whatever runs it: a test or a benchmark of Go, or
// Check.Run without either.
type T interface {
	Name() string
	Context() context.Context
	Cleanup(func())
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skip(args ...any)
}

// subtest runs f as a part of t with a name of its own.
func subtest(t T, name string, f func(t T)) {
	switch t := t.(type) {
	case *testing.T:
		t.Run(name, func(t *testing.T) { f(t) })
	case *run:
		t.part(name, f)
	default:
		t.Fatalf("a %T runs no checks with parts", t)
	}
}
