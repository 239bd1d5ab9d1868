package share_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/agent/share"
	"github.com/trapeze-nic/trapeze/vfio"
)

// unguarded is a NIC that says that no IOMMU guards it. It counts how often it is closed, and fails the test if it is used.
type unguarded struct {
	*emulator.Device
	t      *testing.T
	closed int
}

func (*unguarded) Unguarded() bool { return true }

func (u *unguarded) PhysicalAddress(*vfio.Memory) (uint64, error) {
	u.t.Error("the NIC is given memory")
	return 0, errors.New("none")
}

func (u *unguarded) Reset(context.Context) error {
	u.t.Error("the NIC is reset")
	return nil
}

func (u *unguarded) Close() error {
	u.closed++
	return u.Device.Close()
}

// TestNoIOMMU: a NIC that could access all memory is not shared. It is left as it is, and the error says why.
func TestNoIOMMU(t *testing.T) {
	a, b, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	u := &unguarded{Device: a, t: t}
	vfio.Register("unguarded", func(context.Context, vfio.Address) (vfio.Device, error) { return u, nil })
	n, err := share.Open(t.Context(), "unguarded:", slog.New(slog.DiscardHandler))
	if err == nil {
		t.Fatal(errors.Join(errors.New("it is shared"), n.Close()))
	}
	var of *driver.Error
	if !errors.Is(err, share.ErrNoIOMMU) || !errors.Is(err, descriptors.ErrNotSupported) || !errors.As(err, &of) || !strings.Contains(err.Error(), "IOMMU") {
		t.Error(err)
	}
	if u.closed != 1 {
		t.Errorf("it was closed %d times", u.closed)
	}
}
