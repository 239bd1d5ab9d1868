// Package should fails a test for what is not as the test expects, and lets it go on. What stands behind the claim, a
// format with its values, says in the failure what the line of the test does not.
package should

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// TB is a test. Helper is called if a claim does not hold, and not before: that of a testing.F panics in its fuzz target.
type TB interface {
	Helper()
	Error(...any)
	Fatal(...any)
}

// Hold claims that a condition holds. If it does not, the test says what is: a format and its values.
func Hold(t TB, ok bool, format string, is ...any) {
	if !ok {
		t.Helper()
		t.Error(fmt.Sprintf(format, is...))
	}
}

// OK claims that an error is nil.
func OK(t TB, err error, about ...any) {
	if err != nil {
		t.Helper()
		t.Error(Because(err, about))
	}
}

// Be claims that a value is the wanted one.
func Be[T comparable](t TB, got, want T, about ...any) {
	if got != want {
		t.Helper()
		t.Error(Differ(got, want, about))
	}
}

// Give claims that a call returns the wanted value and no error, as in should.Give(r.Read(b))(t, 5).
func Give[T comparable](got T, err error) func(t TB, want T, about ...any) {
	return func(t TB, want T, about ...any) {
		if got != want || err != nil {
			t.Helper()
			t.Error(Differ(got, want, about), err)
		}
	}
}

// Same claims that two slices have the same elements.
func Same[S ~[]E, E comparable](t TB, got, want S, about ...any) {
	if !slices.Equal(got, want) {
		t.Helper()
		t.Error(Unequal(got, want, about))
	}
}

// Contain claims that a text contains a part.
func Contain(t TB, text, part string, about ...any) {
	if !strings.Contains(text, part) {
		t.Helper()
		t.Error(words(about)+strconv.Quote(part), "is not in\n"+text)
	}
}

// Fail claims that an error is, or wraps, another.
func Fail(t TB, err, want error, about ...any) {
	if !errors.Is(err, want) {
		t.Helper()
		t.Error(Differ(err, want, about))
	}
}

// Refuse claims that a call of two results fails, as in should.Refuse(os.Open(name))(t, fs.ErrNotExist).
func Refuse[T any](_ T, err error) func(t TB, want error, about ...any) {
	return func(t TB, want error, about ...any) {
		t.Helper()
		Fail(t, err, want, about...)
	}
}

// Say claims that an error is not nil, and that its text contains a part.
func Say(t TB, err error, part string, about ...any) {
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Helper()
		t.Error(Differ(err, strconv.Quote(part), about))
	}
}

// Explain claims that a call of two results fails and says why, as in should.Explain(os.Open(name))(t, name).
func Explain[T any](_ T, err error) func(t TB, part string, about ...any) {
	return func(t TB, part string, about ...any) {
		t.Helper()
		Say(t, err, part, about...)
	}
}

func words(about []any) string {
	if len(about) == 0 {
		return ""
	}
	return fmt.Sprintf(about[0].(string), about[1:]...) + ": "
}

// Because says which error there is that there was to be none.
func Because(err error, about []any) string { return words(about) + err.Error() }

// Differ says what a value is, and what it was to be.
func Differ(got, want any, about []any) string {
	return fmt.Sprintf("%s%+v, want %+v", words(about), got, want)
}

// Unequal says where two slices differ, with some elements from there on: buffers may be long.
func Unequal[S ~[]E, E comparable](got, want S, about []any) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("%s%v, want %v: from element %d on, of %d and %d",
		words(about), got[i:min(i+16, len(got))], want[i:min(i+16, len(want))], i, len(got), len(want))
}
