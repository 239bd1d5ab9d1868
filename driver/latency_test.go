package driver_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// TestLatency: of a NIC that samples, some sends are timed, and of others none.
func TestLatency(t *testing.T) {
	leaktest.Check(t)
	for _, k := range []int{0, 1, 3} {
		x, y := devices(t, emulator.PairOptions{})
		var a, b *driver.NIC
		c := beside(t, func() { a, b = open(t, x, driver.Options{SampleLatency: k}), open(t, y, driver.Options{}) })
		from, to := connected(t, a, b, layout{room: 64, slots: 1})
		const messages = 40
		for range messages {
			deliver(t, from, to, make([]byte, 64))
		}
		var l *telemetry.Latency
		list, err := telemetry.Endpoints(contextFor(t), c, 0)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if l = list[0].Latency; (l == nil) != (k == 0) {
			t.Fatalf("one in 2^%d: %+v", k, l)
		}
		if l != nil && (l.Samples != messages>>k || l.P50 <= 0 || l.P50 > l.P99 || l.P99 > l.Max || l.SumNS < l.Max) {
			t.Errorf("one in 2^%d: %+v", k, l)
		}
		var h telemetry.Histogram
		err = c.Ask(contextFor(t), fmt.Sprintf("/trapeze/latency,0,%d", list[0].Number), &h)
		count, last := uint64(0), uint64(0)
		for _, b := range h.Buckets {
			if b[0] <= last || b[1] == 0 {
				t.Errorf("one in 2^%d: %v", k, h.Buckets)
			}
			last, count = b[0], count+b[1]
		}
		if k == 0 && !errors.Is(err, telemetry.ErrNoAnswer) || k > 0 && (err != nil || h.Latency != *l || count != l.Samples || int64(last) < l.Max) {
			t.Errorf("one in 2^%d: %+v, %v", k, h, err)
		}
		list, err = telemetry.Endpoints(contextFor(t), c, 1)
		if err != nil || len(list) != 1 || list[0].Latency != nil {
			t.Errorf("the other NIC: %+v, %v", list, err)
		}
		c.Close()
		should.OK(t, errors.Join(a.Close(), b.Close()))
	}
}

// TestLatencyBeforeTaken: the time of a send ends when it has completed, and the program looks at
// the other queue of the VI, posts, or waits; not when it takes the send back.
func TestLatencyBeforeTaken(t *testing.T) {
	leaktest.Check(t)
	x, y := devices(t, emulator.PairOptions{})
	var a *driver.NIC
	c := beside(t, func() { a = open(t, x, driver.Options{SampleLatency: 1}) })
	b := open(t, y, driver.Options{NoTelemetry: true})
	from, to := connected(t, a, b, layout{room: 64, slots: 8})
	samples := func() uint64 {
		list, err := telemetry.Endpoints(contextFor(t), c, 0)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if list[0].Latency == nil {
			return 0
		}
		return list[0].Latency.Samples
	}
	var sends []*descriptors.Descriptor
	post := func() { // two sends, the second of which is timed
		for range 2 {
			send, recv := from.descriptor(t, len(sends), 64), to.descriptor(t, len(sends), 64)
			must.OK(t, errors.Join(to.v.PostRecv(recv), from.v.PostSend(send)))
			takeRecv(t, to, recv)
			sends = append(sends, send)
		}
	}
	post()
	for ctx := contextFor(t); samples() < 1 && ctx.Err() == nil; {
		should.Refuse(from.v.RecvDone())(t, descriptors.ErrQueueEmpty)
	}
	must.Be(t, samples(), 1, "sends were timed by looks at the other queue")
	post()
	for ctx := contextFor(t); samples() < 2 && ctx.Err() == nil; {
		into := make([]*descriptors.Descriptor, 1)
		should.Refuse(from.v.RecvDoneBatch(into))(t, descriptors.ErrQueueEmpty)
	}
	post()
	for ctx := contextFor(t); !sends[5].Status().Done() && ctx.Err() == nil; {
		a.Poll()
	}
	post()
	if n := samples(); n < 3 {
		t.Errorf("%d sends were timed before any was taken back", n)
	}
	for _, d := range sends {
		takeSend(t, from, d)
	}
	should.Be(t, samples(), 4, "sends were timed")
}

// TestLatencyRefused: what cannot be sampled is refused, with the name of the field.
func TestLatencyRefused(t *testing.T) {
	leaktest.Check(t)
	open := func(k int) error {
		x, _ := devices(t, emulator.PairOptions{})
		n, err := driver.New(contextFor(t), x, driver.Options{Logger: quiet, SampleLatency: k})
		if err == nil {
			return n.Close()
		}
		return err
	}
	for _, k := range []int{-1, 21} {
		should.Fail(t, open(k), descriptors.ErrInvalidParameter, "%d", k)
	}
	for value, good := range map[string]bool{"8": true, "0": false, "x": false, "-3": false, "21": false} {
		t.Setenv("TRAPEZE_LATENCY", value)
		if err := open(0); good != (err == nil) || !good && !errors.Is(err, descriptors.ErrInvalidParameter) {
			t.Errorf("%q: %v", value, err)
		}
	}
}
