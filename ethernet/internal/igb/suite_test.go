package igb_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
)

// nic is a fake for the suite.
type nic struct{ *fakeigb.Device }

func (n nic) Raise() { n.With(func() { n.Interrupt(0) }) }

func (n nic) Sends(f func([]byte)) {
	n.With(func() { n.OnSend = func(s fakeigb.Sent) { f(s.Bytes) } })
}

func (n nic) StandStill() (end func()) {
	n.With(func() { end = standStill(n.Device) })
	return end
}

func TestSuite(t *testing.T) {
	porttest.Suite(t, func(t testing.TB) porttest.NIC { return nic{newFake(t, fakeigb.Options{})} })
}
