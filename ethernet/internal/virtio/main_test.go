package virtio_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// timeout ends tests that do not end by themselves.
const timeout = time.Minute

func TestMain(m *testing.M) { leaktest.Main(m) }

func closePort(t testing.TB, p ethernet.Port) {
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// patiencePerFrame is how much longer exchange may take for each frame: QEMU moves 5,000 a second at
// least.
const patiencePerFrame = 200 * time.Microsecond

// exchange sends count frames from one queue to another, at most window at a time.
func exchange(t testing.TB, from, to ethernet.Queue, count, window int) {
	t.Helper()
	sent, received := 0, 0
	for end := time.Now().Add(timeout + time.Duration(count)*patiencePerFrame); received < count; {
		sent += porttest.Send(t, from, sent, min(32, count-sent, window-(sent-received)))
		n := porttest.Receive(t, to, received)
		received += n
		if n == 0 {
			if err := to.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%d frames were sent, %d have come", sent, received)
		}
	}
}
