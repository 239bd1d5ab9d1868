package tcpip_test

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/framering"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// TestSeenByOthers: a program beside this one sees the counters of a stack, and captures its frames.
func TestSeenByOthers(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(telemetry.Variable, "test")
	t.Setenv("RUNTIME_DIRECTORY", dir)
	a, _, _ := pair(t, 1500, faults{})
	found := telemetry.Find() // other processes come and go
	n := slices.IndexFunc(found, func(path string) bool { return strings.HasPrefix(path, dir) })
	if n < 0 {
		t.Fatal("the port is not shown")
	}
	c := must.Get(telemetry.Dial(t.Context(), found[n]))(t)
	defer c.Close()
	var answer telemetry.Capture
	memory, err := c.Borrow(t.Context(), "/trapeze/capture", &answer)
	if err != nil || memory == nil {
		t.Fatal(answer, err)
	}
	defer unix.Munmap(memory)
	frames := must.Get(framering.NewReader(memory))(t)
	must.Get(a.Ping(within(t, 10*time.Second), own(2).Addresses[0].Addr(), 1000))(t)
	var sent, came int
	for f, ok, err := frames.Next(); ok && err == nil; f, ok, err = frames.Next() {
		if f.Length == 14+20+8+1000 && f.Sent {
			sent++
		} else if f.Length == 14+20+8+1000 {
			came++
		}
	}
	if sent != 1 || came != 1 {
		t.Errorf("of an echo and its answer %d and %d were captured", sent, came)
	}
	var counts map[string]uint64
	must.OK(t, c.Ask(t.Context(), "/ethdev/xstats,1", &counts))
	if counts["link_received_bytes"] < 1000 || counts["port_queues_0_received_frames"] == 0 || counts["rx_good_packets"] == 0 {
		t.Errorf("the counters are %v", counts)
	}
	if _, known := counts["tcp_established"]; !known {
		t.Error("no counters of TCP")
	}
}

// TestSumsByPort: a port that completes checksums is asked to, for both versions of IP, and told where the headers are.
func TestSumsByPort(t *testing.T) {
	name := fmt.Sprintf("t%d", cables.Add(1))
	x, y := end(t, name, 1500), end(t, name, 1500)
	s := &summingPort{Port: x, asked: map[ethernet.Flags]int{}}
	b := run(t, y, own(2))
	a := run(t, s, own(1))
	for _, to := range own(2).Addresses {
		l := echoing(t, b, netip.AddrPortFrom(to.Addr(), 7).String())
		c := must.Get(a.DialContext(within(t, 20*time.Second), "tcp", l.Addr().String()))(t)
		want := slices.Repeat([]byte("checksum"), 20_000)
		go func() { _, _ = c.Write(want) }()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || !slices.Equal(got, want) {
			t.Fatal("over ", to, ": ", err)
		}
		_, _ = c.Close(), l.Close()
	}
	if s.asked[ethernet.SumTCP] < 100 || s.asked[ethernet.SumTCP|ethernet.IPv6] < 100 {
		t.Errorf("asked %v times", s.asked)
	}
}

// summingPort completes checksums of TCP, as a NIC with OffloadSendSum does.
type summingPort struct {
	ethernet.Port
	asked map[ethernet.Flags]int
}

func (p *summingPort) Info() ethernet.Info {
	i := p.Port.Info()
	i.Options.Offloads |= ethernet.OffloadSendSum
	return i
}

func (p *summingPort) Queue(i int) ethernet.Queue { return &summingQueue{p.Port.Queue(i), p} }

type summingQueue struct {
	ethernet.Queue
	p *summingPort
}

// Send completes what it is asked for.
func (q *summingQueue) Send(frames []ethernet.Frame) (int, error) {
	for i := range frames {
		f := &frames[i]
		if f.Flags.Requests() == 0 {
			continue
		}
		q.p.asked[f.Flags]++
		h := header.TCP(q.p.Info().Options.Pool.Bytes(*f)[int(f.L2)+int(f.L3):])
		h.SetChecksum(^checksum.Checksum(h, 0))
		f.Flags = 0 // a frame that does not fit comes again
	}
	return q.Queue.Send(frames)
}
