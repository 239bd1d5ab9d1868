package option

import (
	"errors"
	"io/fs"
	"testing"
)

func TestMark(t *testing.T) {
	err := Errorf("--output x: %w\n\tDid you mean this?", fs.ErrExist)
	if !errors.Is(err, ErrBad) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v is not both what it was and a bad option", err)
	}
	if got, want := err.Error(), "--output x: file already exists Did you mean this?"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
