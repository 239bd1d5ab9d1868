package igb_test

import (
	"os"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// TestQEMUNumbered has two of QEMU's models exchange many numbered frames, none of which may
// be lost, as at most 64 are under way: a million each way in a long run.
func TestQEMUNumbered(t *testing.T) {
	count := 5_000
	if os.Getenv(soak.Variable) != "" { // not soak.Wanted: CI's step of that name has no QEMU
		count = 1_000_000
	}
	m := qemutest.Start(t, "igb,mac=02:00:00:00:00:01", "igb,mac=02:00:00:00:00:02")
	var ports [2]ethernet.Port
	for n := range ports {
		must.OK(t, m.Connect(n, m.NetAddr(1-n)))
		d := must.Get(m.Open(n))(t)
		ports[n] = porttest.Open(t, d, ethernet.Options{})
	}
	for _, p := range ports {
		must.Get(ethernet.WaitLink(contextFor(t), p))(t)
	}
	began := time.Now()
	porttest.Exchange(t, ports[0].Queue(0), ports[1].Queue(0), count, 64)
	porttest.Exchange(t, ports[1].Queue(0), ports[0].Queue(0), count, 64)
	t.Logf("%.0f frames/s", 2*float64(count)/time.Since(began).Seconds())
	for _, p := range ports {
		c := p.Stats()
		if q := c.Queues[0]; q.SentFrames != uint64(count) || q.ReceivedFrames != uint64(count) || q.ReceiveErrors+q.BadLengths+q.Unended+q.Lost+q.Restarts != 0 {
			t.Errorf("%+v", q)
		}
		if d := c.Device; d == nil || d.SentFrames != uint64(count) || d.ReceivedFrames != uint64(count) || d.Missed != 0 {
			t.Errorf("the device counted %+v", d)
		}
	}
}
