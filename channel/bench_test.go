package channel_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
)

// take polls until a message has come, and gives its room back.
func take(b testing.TB, c *channel.Channel) channel.PDU {
	for {
		m, err := c.Poll()
		if err == channel.ErrEmpty {
			continue
		}
		if err != nil || m.Err != nil {
			b.Fatal(m, err)
		}
		if err := c.Release(m); err != nil {
			b.Fatal(err)
		}
		return m
	}
}

// BenchmarkCell is one cell from store to look, on NICs that the program steps: one way. With
// more channels open it costs no more.
func BenchmarkCell(b *testing.B) {
	for _, open := range []int{1, 16, 4000} {
		b.Run(fmt.Sprintf("open=%d", open), func(b *testing.B) {
			x, y := openBoth(b, "&sram=33554432")
			clients, servers := openPairs(b, x, y, open, nil, nil)
			at := 0
			b.ReportAllocs()
			for b.Loop() {
				if err := clients[at].Send(channel.High, 0, 5); err != nil {
					b.Fatal(err)
				}
				take(b, servers[at])
				if at++; at == open {
					at = 0
				}
			}
		})
	}
}

// BenchmarkBulk is messages of almost a double page, at low priority.
func BenchmarkBulk(b *testing.B) {
	for _, options := range []string{"", "&engine=thread"} {
		b.Run("engine"+options, func(b *testing.B) {
			nic, other := openBoth(b, options)
			o := &channel.Options{PageSize: 16384}
			clients, servers := openPairs(b, nic, other, 1, o, o)
			x, y := clients[0], servers[0]
			size := 1000 * channel.Word
			b.SetBytes(int64(size))
			at, sent, taken := 0, 0, 0
			for b.Loop() {
				for sent < taken+3 {
					if err := x.Send(channel.Low, at, at+size/channel.Word); err == channel.ErrFull {
						break
					} else if err != nil {
						b.Fatal(err)
					}
					sent++
				}
				for m := (channel.PDU{}); m.Length == 0; {
					nic.Poll()
					var err error
					if m, err = y.Poll(); err != nil && err != channel.ErrEmpty || m.Err != nil {
						b.Fatal(m, err)
					}
					if m.Length > 0 {
						if err := y.Release(m); err != nil {
							b.Fatal(err)
						}
					}
				}
				taken++
			}
		})
	}
}

// BenchmarkUrgent is one cell of high priority, on an idle wire and beside messages of low
// priority that fill it: the median and the 99th percentile in ns.
func BenchmarkUrgent(b *testing.B) {
	for _, bulk := range []bool{false, true} {
		b.Run(fmt.Sprintf("bulk=%v", bulk), func(b *testing.B) {
			x, y := openBoth(b, "")
			clients, servers := openPairs(b, x, y, 2, nil, nil)
			took := make([]time.Duration, 0, 1<<20)
			for b.Loop() {
				if bulk {
					for range channel.Depth {
						_ = clients[0].Send(channel.Low, 0, 900)
					}
					for range 4 { // wherever the bulk is
						x.Poll()
						y.Poll()
					}
				}
				began := time.Now()
				if err := clients[1].Send(channel.High, 0, 5); err != nil {
					b.Fatal(err)
				}
				m, err := servers[1].Poll()
				for err == channel.ErrEmpty {
					x.Poll() // the bulk goes on
					m, err = servers[1].Poll()
				}
				took = append(took, time.Since(began))
				if err == nil {
					err = servers[1].Release(m)
				}
				if err != nil || m.Err != nil {
					b.Fatal(m, err)
				}
			}
			if m, _ := servers[0].Poll(); bulk && m.Length == 0 {
				b.Fatal("there was no bulk")
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
			b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
		})
	}
}
