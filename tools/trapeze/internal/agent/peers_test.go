package agent_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// peersOf are addresses of NICs that share memory with each other.
func peersOf(t testing.TB) map[string]string {
	return map[string]string{
		"agent": "agent:local?socket=" + serve(t, local),
		"host":  fmt.Sprintf("emu:?wire=host:peers%d", os.Getpid()),
	}
}

func framesSent(t testing.TB, n *via.NIC) uint64 {
	t.Helper()
	counters := must.Get(n.Counters())(t)
	return counters[datasheet.CounterFramesSent.String()]
}

// TestPeersAcknowledgeNothing: NICs that share memory send no frames but messages, from the first one on, also if
// connections are dialled as soon as a NIC is open, and to several peers at a time. The way through the agent has acknowledgements.
func TestPeersAcknowledgeNothing(t *testing.T) {
	const messages = 300
	count := func(t *testing.T, at string, peers int) (most uint64) {
		first := nic(t, at)
		var lanes []*lane
		var others []*via.NIC
		for i := range peers {
			n := nic(t, at)
			others = append(others, n)
			from, to := first, n
			if i%2 == 1 {
				from, to = n, first
			}
			lanes = append(lanes, dial(t, from, to, fmt.Sprint("lane", i)))
		}
		before := framesSent(t, first)
		var each []uint64
		for _, n := range others {
			each = append(each, framesSent(t, n))
		}
		for range messages {
			for _, l := range lanes {
				l.pass(t)
			}
		}
		for i, n := range others {
			sent := framesSent(t, n) - each[i]
			if i%2 == 1 { // it has sent the messages
				sent -= messages
			}
			most = max(most, sent)
		}
		return max(most, framesSent(t, first)-before-uint64((peers+1)/2*messages))
	}
	for name, at := range peersOf(t) {
		t.Run(name, func(t *testing.T) {
			// Where the machine is busy, two may not meet in the time that a connect request waits for it.
			for tries := 1; ; tries++ {
				var n uint64
				if t.Run(fmt.Sprint(tries), func(t *testing.T) { n = count(t, at, 7) }); n <= messages/2 {
					break
				}
				must.Hold(t, tries != 5, "a NIC has sent %d frames beside %d messages of each", n, messages)
			}
		})
	}
	t.Run("switched", func(t *testing.T) {
		if n := count(t, "agent:local?socket="+serve(t, local+"direct = false\n"), 1); n < messages/2 {
			t.Errorf("a NIC has acknowledged %d messages with %d frames", messages, n)
		}
	})
}

// TestPeerLeaves: what a peer has sent before it closes its NIC arrives, and the connection ends. Another peer does not
// notice, nor one that comes then.
func TestPeerLeaves(t *testing.T) {
	for name, at := range peersOf(t) {
		t.Run(name, func(t *testing.T) {
			first, stays := nic(t, at), nic(t, at)
			other := dial(t, first, stays, "stays")
			for round := range 3 {
				goes := must.Get(via.Open(t.Context(), at, via.Options{NoTelemetry: true}))(t)
				l := lay(t, goes, first, fmt.Sprint("goes", round))
				other.pong(t)
				for range 3 {
					if room, err := l.from.TryAcquire(); err != nil || room == nil {
						t.Fatalf("no room: %v", err)
					}
					must.OK(t, l.from.Post(64))
				}
				must.OK(t, goes.Close())
				got := 0
				for end := time.Now().Add(timeout); ; first.Poll() {
					m, err := l.to.TryReceive()
					if err == nil && m != nil {
						got++
						err = l.to.Release()
					}
					if err != nil {
						if !errors.Is(err, via.ErrDisconnected) && !errors.Is(err, via.ErrConnectionBroken) && !errors.Is(err, io.EOF) {
							t.Errorf("the connection ends with %v", err)
						}
						break
					}
					must.Hold(t, !time.Now().After(end), "the connection does not end; %d messages came", got)
				}
				_ = l.to.Close()
				should.Be(t, got, 3, "of 3 messages arrived")
				for range 100 {
					other.pong(t)
				}
			}
		})
	}
}
