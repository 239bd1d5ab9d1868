package driver_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/vfio"
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

// open opens a device, and closes it at the end of the test if that has not done so.
func open(t testing.TB, d vfio.Device, o driver.Options) *driver.NIC {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	n := must.Get(driver.New(contextFor(t), d, o))(t)
	t.Cleanup(func() {
		should.OK(t, n.Close())
	})
	return n
}

// openFake opens a fake device.
func openFake(t *testing.T, d *fakeDevice) *driver.NIC {
	t.Helper()
	return open(t, d, driver.Options{CommandTimeout: timeout})
}

// descriptor lays a descriptor with one segment of length bytes over memory at
// offset; the segment follows it.
func descriptor(t testing.TB, m *driver.Memory, offset, length int) *descriptors.Descriptor {
	t.Helper()
	size := descriptors.DescriptorBytes(1)
	d := must.Get(descriptors.NewDescriptor(m.Bytes()[offset:offset+size], m.Address()+uint64(offset), m.Handle()))(t)
	must.OK(t, d.AddData(m.Address()+uint64(offset+size), m.Handle(), uint32(length)))
	return d
}
