package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// Both sides of a ratio are measured in one run and in turns, blocks of some hundred messages each. It holds on a busy machine too. The
// engines run inline, in the goroutine that sends and receives.

// block is the number of messages of a turn. NICs that are not measured rest meanwhile, for less than the three
// seconds after which a peer is taken for dead, however busy the machine is.
const block = 64

// lane is a connection, both ends of which are the benchmark's.
type lane struct{ from, to *via.Conn }

// dial connects two NICs whose engines run inline.
func dial(b testing.TB, from, to *via.NIC, name string) *lane {
	b.Helper()
	c := lay(b, from, to, name)
	b.Cleanup(func() {
		defer polled(from, to)()
		_, _ = c.from.Close(), c.to.Close()
	})
	return c
}

// lay is dial for connections that the caller closes.
func lay(b testing.TB, from, to *via.NIC, name string) *lane {
	b.Helper()
	l, err := via.Listen(to, name, via.ListenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(b.Context(), timeout)
	defer cancel()
	c := &lane{}
	defer polled(from, to)()
	dialled := make(chan error, 1)
	go func() {
		var err error
		c.from, err = via.Dial(ctx, from, l.Address().String(), small)
		dialled <- err
	}()
	c.to, err = l.Accept(ctx)
	if err := errors.Join(err, <-dialled); err != nil {
		b.Fatal(err)
	}
	return c
}

// polled has engines run until stop is called, while a goroutine waits for what the other end has to do.
func polled(nics ...*via.NIC) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
			}
			for _, n := range nics {
				n.Poll()
			}
			runtime.Gosched()
		}
	}()
	return func() { close(done); <-ended }
}

// pass sends a message of 64 bytes and receives it.
func (c *lane) pass(b testing.TB) {
	room, err := c.from.TryAcquire()
	for ; room == nil && err == nil; room, err = c.from.TryAcquire() {
		c.to.Poll() // which has to acknowledge, in this goroutine
	}
	if err != nil {
		b.Fatal(err)
	}
	if err := c.from.Post(64); err != nil {
		b.Fatal(err)
	}
	m, err := c.to.TryReceive()
	for tries := 0; m == nil && err == nil; tries++ {
		c.from.Poll()
		if m, err = c.to.TryReceive(); tries > 1000 {
			runtime.Gosched() // to the agent's goroutine
		}
	}
	if err == nil {
		err = c.to.Release()
	}
	if err != nil {
		b.Fatal(err)
	}
}

// pong passes a message there, and one back.
func (c *lane) pong(b testing.TB) {
	c.pass(b)
	c.from, c.to = c.to, c.from
}

// turns measures messages of several kinds in turns, and returns the median of each in nanoseconds a message.
func turns(b *testing.B, kinds ...func()) (medians []float64) {
	times := make([][]float64, len(kinds))
	for b.Loop() {
		for i, f := range kinds {
			begin := time.Now()
			for range block {
				f()
			}
			times[i] = append(times[i], float64(time.Since(begin).Nanoseconds())/block)
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, t := range times {
		slices.Sort(t)
		medians = append(medians, t[len(t)/2])
	}
	return medians
}

func nic(b testing.TB, address string) *via.NIC {
	b.Helper()
	n, err := via.Open(b.Context(), address, via.Options{NoTelemetry: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = n.Close() })
	return n
}

// own are two NICs with a shm wire of their own.
func own(b *testing.B) (x, y *via.NIC) {
	at := "emu:?wire=shm:" + filepath.Join(b.TempDir(), "wire") + "&vis=128"
	return nic(b, at), nic(b, at)
}

// BenchmarkMessage is one way of 64 bytes between two clients of the agent that share memory. x-host is the ratio to two NICs of
// the wire that programs of a host share (emu: alone), x-shm to two with a shm wire of their own.
func BenchmarkMessage(b *testing.B) {
	x, y := own(b)
	at, host := "agent:local?socket="+serve(b, local), fmt.Sprint("emu:?wire=host:bench", os.Getpid())
	ours, shared := dial(b, x, y, "own"), dial(b, nic(b, at), nic(b, at), "agent")
	joined := dial(b, nic(b, host), nic(b, host), "host")
	for range 8 * block { // until the frames go the direct way
		shared.pong(b)
	}
	m := turns(b, func() { ours.pong(b) }, func() { joined.pong(b) }, func() { shared.pong(b) })
	b.ReportMetric(m[2], "agent-ns/one-way")
	b.ReportMetric(m[2]/m[0], "x-shm")
	b.ReportMetric(m[2]/m[1], "x-host")
}

// BenchmarkOpen opens a NIC by the agent and one without, in turns. x-own is the ratio of the medians of opening.
func BenchmarkOpen(b *testing.B) {
	addresses := []string{"agent:local?socket=" + serve(b, local+"direct = false\n"), "emu:?wire=loop"}
	times := make([][]float64, len(addresses))
	for b.Loop() {
		for i, at := range addresses {
			begin := time.Now()
			n, err := via.Open(b.Context(), at, via.Options{NoTelemetry: true})
			if err != nil {
				b.Fatal(err)
			}
			times[i] = append(times[i], float64(time.Since(begin).Microseconds())/1000)
			if err := n.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, t := range times {
		slices.Sort(t)
	}
	p10, p50 := len(times[0])/10, len(times[0])/2
	b.ReportMetric(times[0][p10], "p10-ms/open")
	b.ReportMetric(times[0][p50], "p50-ms/open")
	b.ReportMetric(times[0][p50]/times[1][p50], "x-own")
}

// BenchmarkFlood is a round trip of 64 bytes between two clients, through the agent. A third client is idle, or floods the
// agent, in turns. x-p99 is the ratio of the 99th percentiles, x-p50 that of the medians.
func BenchmarkFlood(b *testing.B) {
	for _, kind := range []string{"to nobody", "garbage", "at the victim"} {
		b.Run(kind, func(b *testing.B) {
			socket := serve(b, local+"direct = false\nframes = true\n")
			at := "agent:local?engine=thread&socket=" + socket
			x, y := nic(b, at), nic(b, at)
			c := dial(b, x, y, "victim")
			var on atomic.Bool
			stop := flood(b, socket, kind, y.Query().Address, &on)
			defer stop()
			var times [2][]float64
			for b.Loop() {
				for side := range times {
					on.Store(side == 1)
					for range block {
						begin := time.Now()
						c.pong(b)
						c.pong(b)
						times[side] = append(times[side], float64(time.Since(begin).Nanoseconds())/1000)
					}
				}
			}
			b.ReportMetric(0, "ns/op")
			for _, t := range times {
				slices.Sort(t)
			}
			at99 := func(t []float64) float64 { return t[len(t)*99/100] }
			b.ReportMetric(at99(times[0]), "alone-p99-us")
			b.ReportMetric(at99(times[1]), "flood-p99-us")
			b.ReportMetric(at99(times[1])/at99(times[0]), "x-p99")
			b.ReportMetric(times[1][len(times[1])/2]/times[0][len(times[0])/2], "x-p50")
		})
	}
}

// flood is a client that sends as much as it can while on is true.
func flood(b *testing.B, socket, kind string, victim datasheet.MAC, on *atomic.Bool) (stop func()) {
	c, m, fd := ask(b, socket, agentlink.Message{Kind: agentlink.Open, Version: agentlink.Version}, -1)
	if m.Kind != agentlink.Welcome {
		b.Fatalf("%+v", m)
	}
	conn, err := agentlink.Seqpacket(fd)
	if err != nil {
		b.Fatal(err)
	}
	p, err := wire.AdoptSHM(b.Context(), conn, wire.SHMOptions{Role: wire.SHMConnect, MTU: m.MTU})
	if err != nil {
		b.Fatal(err)
	}
	to, from := datasheet.MAC{2, 0, 0, 0, 9, 9}, datasheet.MAC{}
	if kind != "garbage" { // whose station is no one's
		from = macOf(b, m.Station)
	}
	if kind == "at the victim" {
		to = victim
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
			}
			room := p.Reserve(64)
			if !on.Load() || room == nil {
				p.Abort()
				time.Sleep(20 * time.Microsecond)
				continue
			}
			clear(room)
			copy(room, to[:])
			copy(room[6:], from[:])
			p.Commit()
			p.Flush()
		}
	}()
	return func() {
		close(done)
		<-ended
		c.Close()
		_ = p.Close()
	}
}

func macOf(b *testing.B, text string) (mac datasheet.MAC) {
	if n, err := fmt.Sscanf(text, "%02x:%02x:%02x:%02x:%02x:%02x", &mac[0], &mac[1], &mac[2], &mac[3], &mac[4], &mac[5]); n != len(mac) {
		b.Fatal(err)
	}
	return mac
}
