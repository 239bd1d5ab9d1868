// Package must ends a test for what is not as the test expects. Package should lets it go on.
package must

import (
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// TB is a test.
type TB = should.TB

// Hold claims that a condition holds. If it does not, the test says the values.
func Hold(t TB, ok bool, format string, is ...any) {
	if !ok {
		t.Helper()
		t.Fatal(fmt.Sprintf(format, is...))
	}
}

// OK claims that an error is nil.
func OK(t TB, err error, about ...any) {
	if err != nil {
		t.Helper()
		t.Fatal(should.Because(err, about))
	}
}

// Get returns the value of a call, as in must.Get(os.Open(name))(t), and claims that its error is nil.
func Get[T any](v T, err error) func(TB) T {
	return func(t TB) T {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return v
	}
}

// Two returns both values of a call, and claims that its error is nil.
func Two[A, B any](a A, b B, err error) func(TB) (A, B) {
	return func(t TB) (A, B) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return a, b
	}
}

// Be claims that a value is the wanted one.
func Be[T comparable](t TB, got, want T, about ...any) {
	if got != want {
		t.Helper()
		t.Fatal(should.Differ(got, want, about))
	}
}

// Give claims that a call returns the wanted value and no error.
func Give[T comparable](got T, err error) func(t TB, want T, about ...any) {
	return func(t TB, want T, about ...any) {
		if got != want || err != nil {
			t.Helper()
			t.Fatal(should.Differ(got, want, about), err)
		}
	}
}

// Same claims that two slices have the same elements.
func Same[S ~[]E, E comparable](t TB, got, want S, about ...any) {
	if !slices.Equal(got, want) {
		t.Helper()
		t.Fatal(should.Unequal(got, want, about))
	}
}
