package shell_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// TestErrorLine: what a user reads of an error says what to do once, as the command puts it, and has
// none of Go's words. The exit code is that of the cause.
func TestErrorLine(t *testing.T) {
	late := &via.Error{Op: "dial", Device: "emu:", Code: via.ErrTimeout, Err: fmt.Errorf("no NIC answered: %w", context.DeadlineExceeded), Hint: "start the other side"}
	node := &via.Error{Op: "open", Device: "pci:1", Hint: "outer", Err: fmt.Errorf("map: %w", &vfio.Error{Op: "map", Err: io.ErrShortWrite, Hint: "inner"})}
	for _, tt := range []struct {
		err  error
		code int
		want string
	}{
		{shell.Hinted(fmt.Errorf("%w; tried for 1s", late), "start recv there"), shell.ExitTimeout, "dial on emu:: no NIC answered: time ran out; tried for 1s (start recv there)"},
		{shell.Hinted(node, "read the manual"), shell.ExitFailure, "open on pci:1: map: map: short write (read the manual)"},
		{shell.Hinted(errors.Join(io.EOF, node), "x"), shell.ExitPeerLost, "EOF; open on pci:1: map: map: short write (x)"},
		{late, shell.ExitTimeout, "dial on emu:: no NIC answered: time ran out (start the other side)"},
		{fmt.Errorf("read: %w", os.ErrDeadlineExceeded), shell.ExitTimeout, "read: time ran out"},
		{fmt.Errorf("wait: %w", context.Canceled), shell.ExitFailure, "wait: canceled"},
		{&vfio.Error{Op: "listen", Err: vfio.ErrBadAddress}, shell.ExitDevice, "listen: bad device address"},
		{fmt.Errorf("map memory: %w", vfio.ErrUnknownScheme), shell.ExitDevice, "map memory: unknown kind of device address"},
		{option.Errorf("--size 0: 1 or more"), shell.ExitUsage, "--size 0: 1 or more (see 'test wait --help')"},
	} {
		var log bytes.Buffer
		code := program(func(context.Context) error { return tt.err }).Run(t.Context(), []string{"wait"}, strings.NewReader(""), io.Discard, &log)
		if want := "test: " + tt.want + "\n"; code != tt.code || log.String() != want {
			t.Errorf("exit code %d instead of %d: %q, want %q", code, tt.code, log.String(), want)
		}
	}
}
