package framescmd_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

type relayReport struct {
	Dropped uint64
	Ports   []struct {
		ReceivedFrames uint64 `json:"received_frames"`
		SentFrames     uint64 `json:"sent_frames"`
	}
}

// raw makes a frame of n bytes.
func raw(to, from ethernet.MAC, seed, n int) []byte {
	b := append(append(append(make([]byte, 0, n), to[:]...), from[:]...), 0x88, 0xb6)
	for len(b) < n {
		b = append(b, byte(seed+len(b)))
	}
	return b
}

// arrives sends a frame from one peer until others have it, and another frame after it, so
// that none of the first is left: the command between may not be there yet.
func arrives(t *testing.T, frame []byte, from *peer, to ...*peer) {
	t.Helper()
	waittest.Until(t, "something arrives", func() bool {
		from.send(t, frame)
		return to[0].receive(t, 50*time.Millisecond) != nil
	})
	last := append(bytes.Clone(frame), 'l', 'a', 's', 't')
	from.send(t, last)
	for _, p := range to {
		for {
			got := p.receive(t, timeout)
			if bytes.Equal(got, last) {
				break
			}
			must.Same(t, got, frame, "came")
		}
	}
}

// TestForward passes frames of all sizes both ways.
func TestForward(t *testing.T) {
	for _, options := range []string{"", "&engine=thread"} {
		one, two := newWire()+options, newWire()+options
		x, y := newPeer(t, one), newPeer(t, two)
		forward := start(t, "forward", "--device", one, "--device", two)
		arrives(t, raw(ethernet.MAC{2, 0, 0, 0, 0, 9}, x.MAC(), 0, 60), x, y)
		sizes := []int{60, 61, 1000, 1514}
		for i := range 200 {
			n := sizes[i%len(sizes)]
			there, back := raw(y.MAC(), x.MAC(), i, n), raw(x.MAC(), y.MAC(), i+1, n)
			x.send(t, there)
			y.send(t, back)
			must.Same(t, y.receive(t, timeout), there, "there")
			must.Same(t, x.receive(t, timeout), back, "back")
		}
		forward.stop()
		var r relayReport
		forward.report(t, &r)
		if r.Dropped != 0 || r.Ports[0].SentFrames != 200 || r.Ports[1].SentFrames < 201 || r.Ports[0].ReceivedFrames != r.Ports[1].SentFrames {
			t.Errorf("%+v", r)
		}
	}
}
