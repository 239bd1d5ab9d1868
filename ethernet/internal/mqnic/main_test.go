package mqnic_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/fakemqnic"
	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/mqnic"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// timeout is far more than anything here takes; soon is what the device may take in tests in which
// it takes for ever.
const (
	timeout = 20 * time.Second
	soon    = 40 * time.Millisecond
)

var (
	quiet      = porttest.Quiet
	contextFor = porttest.Context
)

// newFake makes a device, and at the end of the test looks at what it has seen.
func newFake(t testing.TB, o fakemqnic.Options) *fakemqnic.Device {
	t.Helper()
	d := must.Get(fakemqnic.New(o))(t)
	d.CheckAtEnd(t)
	return d
}

// config is the least that Open needs.
func config(t testing.TB, c ethernet.Options) ethernet.Options {
	t.Helper()
	if c.MAC == (ethernet.MAC{}) {
		c.MAC = porttest.Own
	}
	return porttest.Config(t, c)
}

// open opens a device and closes it at the end of the test.
func open(t testing.TB, d *fakemqnic.Device, c ethernet.Options) ethernet.Port {
	t.Helper()
	return porttest.Open(t, d, config(t, c))
}

// nic is a fake for the suite.
type nic struct{ *fakemqnic.Device }

func (n nic) Arrive(b []byte) bool { return n.Device.Arrive(0, b) }

func (n nic) Raise() { n.With(func() { n.Interrupt(0) }) }

func (n nic) Sends(f func([]byte)) {
	n.With(func() { n.OnSend = func(s fakemqnic.Sent) { f(s.Bytes) } })
}

// StandStill has the device miss the doorbells of its transmit queues.
func (n nic) StandStill() (end func()) {
	still := true
	n.With(func() {
		n.OnWrite = func(offset uint64, v uint32) bool {
			return still && v>>16 == 0x8080 && v&0xffff != 0 && offset >= n.TX(0, 0) && offset < n.RX(0, 0)
		}
	})
	return func() { n.With(func() { still = false }) }
}

func TestSuite(t *testing.T) {
	porttest.Suite(t, func(t testing.TB) porttest.NIC { return nic{newFake(t, fakemqnic.Options{})} })
}
