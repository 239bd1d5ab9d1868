package driver_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// timeout is far more than anything here takes; what waits longer never ends.
const timeout = 20 * time.Second

// quiet keeps what the tests provoke out of their output.
var quiet = slog.New(slog.DiscardHandler)

func contextFor(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// openFake opens a fake device and closes it at the end of the test.
func openFake(t *testing.T, d *fakeDevice) *driver.NIC {
	t.Helper()
	n, err := driver.New(contextFor(t), d, driver.Options{Logger: quiet, CommandTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// descriptor lays a descriptor with one segment of length bytes over memory at
// offset; the segment follows it.
func descriptor(t testing.TB, m *driver.Memory, offset, length int) *descriptors.Descriptor {
	t.Helper()
	size := descriptors.DescriptorBytes(1)
	d, err := descriptors.NewDescriptor(m.Bytes()[offset:offset+size], m.Address()+uint64(offset), m.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.AddData(m.Address()+uint64(offset+size), m.Handle(), uint32(length)); err != nil {
		t.Fatal(err)
	}
	return d
}
