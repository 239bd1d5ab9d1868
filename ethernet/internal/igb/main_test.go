package igb_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/igb"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// timeout is far more than anything here takes; what waits longer never ends.
const timeout = 20 * time.Second

var (
	contextFor = porttest.Context
	config     = porttest.Config
)

// newFake makes a device, and at the end of the test looks at what it has seen.
func newFake(t testing.TB, o fakeigb.Options) *fakeigb.Device {
	t.Helper()
	d := must.Get(fakeigb.New(o))(t)
	d.CheckAtEnd(t)
	return d
}

// open opens a device and closes it at the end of the test.
func open(t testing.TB, d *fakeigb.Device, c ethernet.Options) ethernet.Port {
	t.Helper()
	return porttest.Open(t, d, config(t, c))
}

// send sends one frame and fails the test if it is not taken.
func send(t testing.TB, p ethernet.Port, queue int, data []byte, change func(f *ethernet.Frame)) {
	t.Helper()
	must.Give(porttest.TrySend(p.Queue(queue), data, change))(t, 1)
}
