package failure_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/failure"
)

// TestText: an error inside another one about the same device does not name it again, nor the same
// operation.
func TestText(t *testing.T) {
	inner := &failure.Error{Op: "map DMA", Device: "pci:1", Err: io.EOF, Hint: "raise the limit"}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{inner, "map DMA pci:1: EOF (raise the limit)"},
		{&failure.Error{Op: "parse address", Err: io.EOF}, "parse address: EOF"},
		{&failure.Error{Op: "open"}, "open: <nil>"},
		{&failure.Error{Op: "open", Device: "pci:1", Err: inner}, "open pci:1: map DMA: EOF (raise the limit)"},
		{&failure.Error{Op: "map DMA", Device: "pci:1", Err: inner}, "map DMA pci:1: EOF (raise the limit)"},
		{&failure.Error{Op: "open", Device: "pci:2", Err: inner}, "open pci:2: map DMA pci:1: EOF (raise the limit)"},
		{&failure.Error{Op: "open", Device: "pci:1", Err: fmt.Errorf("first: %w", inner)}, "open pci:1: first: map DMA pci:1: EOF (raise the limit)"},
	} {
		should.Be(t, tt.err.Error(), tt.want)
	}
	should.Be(t, failure.Inside("parse address", "x y", &failure.Error{Op: "parse address", Device: `"x y"`, Err: io.EOF}), "EOF", "inside")
}

func TestCause(t *testing.T) {
	err := fmt.Errorf("outer: %w", &failure.Error{Op: "parse address", Err: fmt.Errorf("%w: empty", failure.ErrBadAddress)})
	var e *failure.Error
	if !errors.Is(err, failure.ErrBadAddress) || !errors.As(err, &e) || e.Op != "parse address" {
		t.Errorf("%v does not show its cause", err)
	}
}
