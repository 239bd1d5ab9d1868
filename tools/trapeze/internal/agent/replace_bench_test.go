package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// BenchmarkReplace measures a take-over by an agent in a process of its own: the longest gap between two messages of
// 1000 bytes that pass the agents meanwhile, for so many clients; over AF_XDP, if the test's process has left0 and
// right0 (as root: ip link add left0 type veth peer name right0, and both up).
func BenchmarkReplace(b *testing.B) {
	for _, clients := range []int{2, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			text, socket := indirect(b)
			text += "clients = 256\nvis = 8\n"
			from, to, old := crowd(b, text, socket, clients)
			gaps(b, text, from, to, old)
		})
	}
	b.Run("afxdp", func(b *testing.B) {
		text, socket := indirect(b)
		text = strings.Replace(text, "\"emu:\"", "\"eth:left0\"", 1)
		to, err := via.Open(b.Context(), "emu:?engine=thread&wire=afxdp:right0", via.Options{NoTelemetry: true})
		if err != nil {
			b.Skipf("no left0 and right0 that are joined: %v", err)
		}
		b.Cleanup(func() { _ = to.Close() })
		from, _, old := crowd(b, text, socket, 2)
		gaps(b, text, from, to, old)
	})
}

// crowd starts an agent, and opens NICs of it, of which it returns two.
func crowd(b *testing.B, text, socket string, n int) (from, to *via.NIC, old *process) {
	old = spawn(b, nil, "--file", written(b, text))
	old.ready(b)
	for range n / 2 {
		from, to = shared(b, socket)
	}
	return from, to, old
}

// gaps replaces the agent b.N times, and reports the longest gaps: their mean and the largest.
func gaps(b *testing.B, text string, from, to *via.NIC, old *process) {
	var s stream
	s.begin(b, from, to)
	file := written(b, text)
	var sum, most time.Duration
	n := 0
	for b.Loop() {
		s.progress(b, 100)
		s.gap.Store(0)
		next := spawn(b, nil, "--file", file, "--replace")
		next.ready(b)
		s.progress(b, 100)
		old.ended(b, 0, "")
		old = next
		gap := time.Duration(s.gap.Load())
		sum, most = sum+gap, max(most, gap)
		n++
	}
	s.end(b)
	b.ReportMetric(float64(sum.Microseconds())/1e3/float64(n), "ms-gap")
	b.ReportMetric(float64(most.Microseconds())/1e3, "ms-most")
}
