package driver_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
)

// exchanged is the size of the messages of traffic and postOne: several frames.
const exchanged = 30_000

// traffic connects two NICs and sends messages both ways, each of several
// frames, a given number of times.
func traffic(t *testing.T, a, b *driver.NIC, times int) {
	t.Helper()
	x, y := connected(t, a, b, layout{room: exchanged, slots: 1})
	message := make([]byte, exchanged)
	for i := range times {
		for j := range message {
			message[j] = byte(i + j*7)
		}
		deliver(t, x, y, message)
		deliver(t, y, x, message)
	}
	for _, e := range []*end{x, y} {
		should.OK(t, e.v.Abandon(contextFor(t)))
	}
}

// postOne connects two NICs and posts a message of several frames from a to b,
// which waits for it.
func postOne(t *testing.T, a, b *driver.NIC) {
	t.Helper()
	x, y := connected(t, a, b, layout{room: exchanged, slots: 1})
	must.OK(t, errors.Join(y.v.PostRecv(y.descriptor(t, 0, exchanged)), x.v.PostSend(x.descriptor(t, 0, exchanged))))
}

// stream sends messages of several frames both ways at once until during returns: all of them arrive whole. Then it counts
// frames: all that were sent have arrived, none of them was dropped on the way.
func stream(t *testing.T, a, b *driver.NIC, during func()) {
	t.Helper()
	x, y := connected(t, a, b, layout{room: exchanged, slots: 2})
	both := [2]*end{x, y}
	before := counters(t, a)["frames_dropped"] + counters(t, b)["frames_dropped"] // a request that comes before its server waits
	done := make(chan struct{})
	go func() {
		defer close(done)
		during()
	}()
	round := func(text byte) {
		var sends, receives [2]*descriptors.Descriptor
		for i, e := range both {
			copy(e.buffer(0), bytes.Repeat([]byte{text, byte(i)}, exchanged/2))
			sends[i], receives[i] = e.descriptor(t, 0, exchanged), e.descriptor(t, 1, exchanged)
			must.OK(t, e.v.PostRecv(receives[i]))
		}
		must.OK(t, errors.Join(x.v.PostSend(sends[0]), y.v.PostSend(sends[1])))
		for i, e := range both {
			takeSend(t, e, sends[i])
			takeRecv(t, both[1-i], receives[1-i])
			must.Same(t, e.buffer(0), both[1-i].buffer(1), "other bytes arrived")
		}
	}
	text := byte(0)
	for going := true; going; text++ {
		select {
		case <-done:
			going = false // the last messages come after the end of during
		default:
		}
		round(text)
	}
	waittest.Until(t, "all frames have arrived", func() bool {
		a.Poll()
		b.Poll()
		x, y := counters(t, a), counters(t, b)
		must.Be(t, x["frames_dropped"]+y["frames_dropped"], before, "frames dropped")
		return x["frames_sent"] == y["frames_received"] && y["frames_sent"] == x["frames_received"]
	})
	for _, e := range both {
		should.OK(t, e.v.Abandon(contextFor(t)))
	}
}

func counters(t *testing.T, n *driver.NIC) map[string]uint64 {
	t.Helper()
	return must.Get(n.Counters())(t)
}
