package drivertest

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/driver"
)

// exchanged is the size of the messages of Traffic and Post: several frames.
const exchanged = 30_000

// Traffic connects two NICs and sends messages both ways, each of several
// frames, a given number of times.
func Traffic(t *testing.T, a, b *driver.NIC, times int) {
	t.Helper()
	x, y := connected(t, a, b, layout{room: exchanged, slots: 1})
	message := make([]byte, exchanged)
	for i := range times {
		for j := range message {
			message[j] = byte(i + j*7)
		}
		transfer(t, x, y, message)
		transfer(t, y, x, message)
	}
	for _, e := range []*end{x, y} {
		if err := e.v.Destroy(Context(t)); err != nil {
			t.Error(err)
		}
	}
}

// Post connects two NICs and posts a message of several frames from a to b,
// which waits for it.
func Post(t *testing.T, a, b *driver.NIC) {
	t.Helper()
	x, y := connected(t, a, b, layout{room: exchanged, slots: 1})
	if err := errors.Join(y.v.PostRecv(y.descriptor(t, 0, exchanged)), x.v.PostSend(x.descriptor(t, 0, exchanged))); err != nil {
		t.Fatal(err)
	}
}
