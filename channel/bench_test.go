package channel_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// The benchmarks run two emulated NICs on a memory wire, engines inline if nothing else is
// said: one goroutine does the work of both applications and both NICs. What is compared is
// measured in turns of one run, so that the ratios hold on a busy machine too.

// take polls until a message has come, and gives its room back.
func take(b testing.TB, c *channel.Channel) channel.PDU {
	for {
		m, err := c.Poll()
		if err == via.ErrNotDone {
			continue
		}
		if err != nil || m.Err != nil {
			b.Fatal(m, err)
		}
		must.OK(b, c.Release(m))
		return m
	}
}

// quantile of what was measured, which it sorts.
func quantile(took []time.Duration, q float64) float64 {
	slices.Sort(took)
	return float64(took[min(int(q*float64(len(took))), len(took)-1)])
}

// viPair is a pair of VIs with messages of one size from x to y.
type viPair struct {
	x, y           *conform.End
	sent, returned int
}

func newVIPair(b testing.TB, nics *conform.World, size int) *viPair {
	p := &viPair{}
	p.x, p.y = nics.Connect(conform.Setup{Attributes: via.VIAttributes{MaxTransfer: 64 << 10}, Memory: 2*size + 64})
	for i := range p.x.Send {
		p.x.Prepare(b, p.x.Send[i], 0, size)
		p.y.Prepare(b, p.y.Recv[i], size, size)
		must.OK(b, p.y.VI.PostRecv(p.y.Recv[i]))
	}
	return p
}

// reclaim takes the oldest descriptor back whose message has been sent, if there is one.
func (p *viPair) reclaim(b testing.TB) bool {
	if p.sent == p.returned {
		return false
	}
	d, err := p.x.VI.SendDone()
	if err == via.ErrNotDone {
		return false
	}
	if err != nil || d.Status().Failed() {
		b.Fatal(err, d)
	}
	p.returned++
	return true
}

// post sends a message if there is room for one.
func (p *viPair) post(b testing.TB) bool {
	if p.sent-p.returned == len(p.x.Send) {
		return false
	}
	d := p.x.Send[p.sent%len(p.x.Send)]
	d.Rearm()
	must.OK(b, p.x.VI.PostSend(d))
	p.sent++
	return true
}

// poll takes a message if one has come, and gives its receive back.
func (p *viPair) poll(b testing.TB) bool {
	d, err := p.y.VI.RecvDone()
	if err == via.ErrNotDone {
		return false
	}
	if err != nil || d.Status().Failed() {
		b.Fatal(err, d)
	}
	d.Rearm()
	must.OK(b, p.y.VI.PostRecv(d))
	return true
}

// batch is how many messages are timed together where one is too short for the clock.
const batch = 16

// BenchmarkCell is one cell from store to look, one way, and a message of 64 bytes on a VI, in
// turns: medians of batches, and how many times as long the cell takes.
func BenchmarkCell(b *testing.B) {
	x, y := openBoth(b, "")
	clients, servers := openPairs(b, x, y, 1, channel.Options{}, channel.Options{})
	p, q := openBoth(b, "")
	vi := newVIPair(b, conform.NewWorld(b, p, q), 64)
	var cell, message []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		for range batch {
			must.OK(b, clients[0].Send(channel.High, 0, 5))
			take(b, servers[0])
		}
		between := time.Now()
		for range batch {
			vi.post(b)
			for !vi.poll(b) {
			}
			vi.reclaim(b)
		}
		cell, message = append(cell, between.Sub(began)), append(message, time.Since(between))
	}
	c, m := quantile(cell, 0.5)/batch, quantile(message, 0.5)/batch
	b.ReportMetric(c, "cell-ns")
	b.ReportMetric(m, "vi-64B-ns")
	b.ReportMetric(c/m, "x-vi")
}

// BenchmarkOpen is what a send of one cell costs with 16 channels open, and with all that there
// are, on NICs of their own and in turns: up to where the cell is on the wire.
func BenchmarkOpen(b *testing.B) {
	counts := []int{16, 4095}
	var clients, servers [2][]*channel.Channel
	for i, n := range counts {
		x, y := openBoth(b, enough)
		clients[i], servers[i] = openPairs(b, x, y, n, channel.Options{}, channel.Options{})
	}
	var took [2][]time.Duration
	b.ReportAllocs()
	for b.Loop() {
		for i, n := range counts {
			began := time.Now()
			for j := range batch {
				must.OK(b, clients[i][j*(n/batch)].Send(channel.High, 0, 5))
			}
			took[i] = append(took[i], time.Since(began))
			for j := range batch {
				take(b, servers[i][j*(n/batch)])
			}
		}
	}
	few, many := quantile(took[0], 0.5)/batch, quantile(took[1], 0.5)/batch
	b.ReportMetric(few, "16-ns")
	b.ReportMetric(many, "4095-ns")
	b.ReportMetric(many/few, "ratio")
}

// bulkWords is the length of a bulk message beside which others are urgent.
const bulkWords = 900

// processorTime is what the program has taken of the processors.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	must.OK(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkBulk is messages of almost a double page, at low priority: bytes by the clock, and by
// the time that the program has had of the processors, which others that run make less.
func BenchmarkBulk(b *testing.B) {
	for _, options := range []string{"", "&engine=thread"} {
		b.Run("engine"+options, func(b *testing.B) {
			nic, other := openBoth(b, options)
			o := channel.Options{PageSize: 16384}
			clients, servers := openPairs(b, nic, other, 1, o, o)
			x, y := clients[0], servers[0]
			const size = 1000 * channel.Word
			b.SetBytes(size)
			at, sent, taken, before := 0, 0, 0, processorTime(b)
			for b.Loop() {
				for sent < taken+3 {
					if err := x.Send(channel.Low, at, at+size/channel.Word); err == via.ErrQueueFull {
						break
					} else if err != nil {
						b.Fatal(err)
					}
					sent++
				}
				for m := (channel.PDU{}); m.Length == 0; {
					nic.Poll()
					var err error
					if m, err = y.Poll(); err != nil && err != via.ErrNotDone || m.Err != nil {
						b.Fatal(m, err)
					}
					if m.Length > 0 {
						must.OK(b, y.Release(m))
					}
				}
				taken++
			}
			cells := float64(b.N) * float64((size+datasheet.CellPayload-1)/datasheet.CellPayload)
			b.ReportMetric(size*float64(b.N)/(processorTime(b)-before).Seconds()/1e6, "cpu-MB/s")
			b.ReportMetric(cells/b.Elapsed().Seconds()/1e6, "Mcells/s")
		})
	}
}

// urgency is two NICs on which something short is sent, perhaps beside bulk.
type urgency struct {
	name   string
	bulk   func() // has as much under way as the sender and the wire take
	drain  func()
	urgent func() time.Duration
	took   []time.Duration
}

// cellUrgency is a channel's cell of high priority, beside another's messages of low priority.
func cellUrgency(b *testing.B, name string, beside bool, nics *conform.World) *urgency {
	o := channel.Options{PageSize: 16384}
	clients, servers := nics.Channels(2, o, o)
	u := &urgency{name: name, bulk: func() {}, drain: func() {}}
	if beside {
		u.drain = func() {
			for m, err := servers[0].Poll(); err == nil; m, err = servers[0].Poll() {
				// What comes faster than it is looked at is cut off.
				if err := servers[0].Release(m); m.Err != nil && m.Err != channel.ErrCut || err != nil {
					b.Fatal(m, err)
				}
			}
		}
		u.bulk = func() {
			for range channel.Depth {
				_ = clients[0].Send(channel.Low, 0, bulkWords) // until it is full
			}
		}
	}
	u.urgent = func() time.Duration {
		began := time.Now()
		must.OK(b, clients[1].Send(channel.High, 0, 5))
		m, err := servers[1].Poll()
		for err == via.ErrNotDone {
			nics.A.Poll() // the bulk goes on
			m, err = servers[1].Poll()
		}
		took := time.Since(began)
		if err == nil {
			err = servers[1].Release(m)
		}
		if err != nil || m.Err != nil {
			b.Fatal(m, err)
		}
		return took
	}
	return u
}

// viUrgency is a message of 64 bytes on a VI, beside another's messages of the same bulk.
func viUrgency(b *testing.B, name string, beside bool, nics *conform.World) *urgency {
	short := newVIPair(b, nics, 64)
	u := &urgency{name: name, bulk: func() {}, drain: func() {}}
	if beside {
		bulk := newVIPair(b, nics, bulkWords*channel.Word)
		u.bulk = func() {
			for bulk.post(b) { // until it is full
			}
		}
		u.drain = func() {
			for bulk.poll(b) || bulk.reclaim(b) {
			}
		}
	}
	u.urgent = func() time.Duration {
		began := time.Now()
		for !short.post(b) {
			short.reclaim(b)
		}
		for !short.poll(b) {
			nics.A.Poll() // the bulk goes on
		}
		took := time.Since(began)
		short.reclaim(b)
		return took
	}
	return u
}

// BenchmarkUrgent is something short, on an idle wire and beside bulk that fills it, in turns: one
// cell of high priority, and a message on a VI. The median and the 99th percentile in ns, how much
// more the cell's is beside bulk, and how many times as long the VI's message takes there. The wire
// is as fast as memory, or a link of 10 Gbit/s.
func BenchmarkUrgent(b *testing.B) {
	for name, open := range map[string]func() (x, y *via.NIC){
		"memory":   func() (x, y *via.NIC) { return openBoth(b, "") },
		"10Gbit/s": func() (x, y *via.NIC) { return openPaced(b, 10) },
	} {
		b.Run(name, func(b *testing.B) {
			pair := func() *conform.World {
				x, y := open()
				return conform.NewWorld(b, x, y)
			}
			all := []*urgency{cellUrgency(b, "cell-idle", false, pair()), cellUrgency(b, "cell-bulk", true, pair()),
				viUrgency(b, "vi-idle", false, pair()), viUrgency(b, "vi-bulk", true, pair())}
			for b.Loop() {
				for _, u := range all {
					u.bulk()
					u.took = append(u.took, u.urgent())
					u.drain()
				}
			}
			for _, u := range all {
				b.ReportMetric(quantile(u.took, 0.5), u.name+"-p50-ns")
				b.ReportMetric(quantile(u.took, 0.99), u.name+"-p99-ns")
			}
			b.ReportMetric(quantile(all[1].took, 0.99)-quantile(all[0].took, 0.99), "cell-more-p99-ns")
			b.ReportMetric(quantile(all[3].took, 0.99)/quantile(all[1].took, 0.99), "vi-x-cell-p99")
			b.ReportMetric(quantile(all[3].took, 0.5)/quantile(all[1].took, 0.5), "vi-x-cell-p50")
		})
	}
}

// BenchmarkStamp is how much the stamps of single cells vary, in units of the clock, 100 ns: from
// the store to the stamp, above the shortest such time. NICs run on threads of their own, or are
// stepped by the receiver, who polls.
func BenchmarkStamp(b *testing.B) {
	for _, options := range []string{"", "&engine=thread"} {
		b.Run("engine"+options, func(b *testing.B) {
			x, y := openBoth(b, options)
			clients, servers := openPairs(b, x, y, 1, channel.Options{}, channel.Options{})
			var took []time.Duration
			start := time.Now()
			for b.Loop() {
				sent := time.Since(start)
				must.OK(b, clients[0].Send(channel.High, 0, 5))
				took = append(took, take(b, servers[0]).Stamp-sent)
			}
			least := slices.Min(took)
			for q, name := range map[float64]string{0.5: "p50", 0.9: "p90", 0.99: "p99", 1: "max"} {
				b.ReportMetric((quantile(took, q)-float64(least))/datasheet.ClockResolution, fmt.Sprintf("%s-100ns", name))
			}
		})
	}
}
