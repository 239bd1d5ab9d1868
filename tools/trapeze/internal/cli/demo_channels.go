package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/via"
)

// channelsReport is the JSON output of demo --channels. Latencies are from the store that
// sends a message to when it is found.
type channelsReport struct {
	Latency   []channelLatency `json:"latency"`
	BulkRate  float64          `json:"bulk_mb_per_s"`
	Histogram []latencyBucket  `json:"histogram" help:"messages that took up to so long, and longer than those before"`
}

// channelLatency is the latency of one kind of messages.
type channelLatency struct {
	Of string `json:"of" help:"urgent, idle wire; urgent, beside bulk; or bulk"`
	demoLatency
}

// latencyBucket counts messages that took up to so long, and longer than the bucket before.
type latencyBucket struct {
	UpTo   float64 `json:"up_to_us"`
	Idle   int     `json:"idle"`
	Urgent int     `json:"urgent"`
	Bulk   int     `json:"bulk"`
}

// What the demonstration sends: one cell every urgentEvery, and messages of bulkWords words
// behind each other.
const (
	urgentWords = 5
	bulkWords   = 900
	urgentEvery = 50 * time.Microsecond
)

// timedPair is a pair of channels whose messages are timed.
type timedPair struct {
	from, to *channel.Channel
	began    []time.Time // of those under way, oldest first
	took     []time.Duration
}

// bulkUnderWay is the number of messages that fit the receiving double page, beside one that is
// being looked at.
const bulkUnderWay = 3

// send sends a message if there is a place for it.
func (s *timedPair) send(p channel.Priority, words int) error {
	if len(s.began) == bulkUnderWay {
		return nil
	}
	began := time.Now()
	switch err := s.from.Send(p, 0, words); {
	case err == via.ErrQueueFull:
		return nil
	case err != nil:
		return err
	}
	s.began = append(s.began, began)
	return nil
}

// take takes what has come.
func (s *timedPair) take() error {
	m, err := s.to.Poll()
	switch {
	case err == via.ErrNotDone:
		return nil
	case err != nil:
		return err
	case m.Err != nil:
		return m.Err
	}
	s.took = append(s.took, time.Since(s.began[0]))
	s.began = s.began[1:]
	return s.to.Release(m)
}

// demoChannels shows that cells of high priority do not wait for bulk.
func (p *program) demoChannels(ctx context.Context, duration time.Duration) (err error) {
	a, b, err := openPair(ctx, via.Options{})
	if err != nil {
		return err
	}
	defer closing(a, &err)
	defer closing(b, &err)
	l, err := channel.Listen(b, channelName, channel.Options{})
	if err != nil {
		return err
	}
	var pairs [2]timedPair
	for i := range pairs {
		if pairs[i].from, err = channel.Dial(ctx, a, l.Address().String(), channel.Options{PageSize: 16 << 10}); err == nil {
			pairs[i].to, err = l.Accept(ctx)
		}
		if err != nil {
			return errors.Join(err, l.Close())
		}
	}
	if err := l.Close(); err != nil {
		return err
	}
	urgent, bulk := &pairs[0], &pairs[1]
	if err := alternate(ctx, a, duration/2, urgent, nil); err != nil {
		return err
	}
	idle := urgent.took
	urgent.took = nil
	began := time.Now()
	if err := alternate(ctx, a, duration, urgent, bulk); err != nil {
		return err
	}
	r := channelsReport{BulkRate: float64(len(bulk.took)*bulkWords*channel.Word) / time.Since(began).Seconds() / 1e6,
		Latency: []channelLatency{{"urgent, idle wire", latencyOf(urgentWords, idle)},
			{"urgent, beside bulk", latencyOf(urgentWords, urgent.took)}, {"bulk", latencyOf(bulkWords, bulk.took)}}}
	r.Histogram = histogramOf(idle, urgent.took, bulk.took)
	return p.Report(r)
}

// alternate sends urgent cells, and bulk beside them if that is not nil, for a time. a is the
// sender's NIC, which is stepped; the receiver's is by looking.
func alternate(ctx context.Context, a *via.NIC, d time.Duration, urgent, bulk *timedPair) error {
	end, next := time.Now().Add(d), time.Now()
	for now := next; now.Before(end) || len(urgent.took) == 0 || bulk != nil && len(bulk.took) == 0; now = time.Now() {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if bulk != nil {
			if err := errors.Join(bulk.send(channel.Low, bulkWords), bulk.take()); err != nil {
				return err
			}
		}
		if !now.Before(next) && len(urgent.began) == 0 {
			next = now.Add(urgentEvery)
			if err := urgent.send(channel.High, urgentWords); err != nil {
				return err
			}
		}
		if err := urgent.take(); err != nil {
			return err
		}
		a.Poll()
	}
	return nil
}

// latencyOf describes times, of which there are some, and sorts them.
func latencyOf(words int, took []time.Duration) demoLatency {
	slices.Sort(took)
	at := func(share float64) float64 { return units.Microseconds(took[int(share*float64(len(took)-1))]) }
	return demoLatency{Bytes: words * channel.Word, P50: at(0.5), P99: at(0.99), P999: at(0.999)}
}

// histogramOf counts sorted times in buckets that double.
func histogramOf(idle, urgent, bulk []time.Duration) []latencyBucket {
	var all []latencyBucket
	for limit := time.Microsecond; len(idle)+len(urgent)+len(bulk) > 0; limit *= 2 {
		count := func(took *[]time.Duration) int {
			n, _ := slices.BinarySearch(*took, limit+1)
			*took = (*took)[n:]
			return n
		}
		all = append(all, latencyBucket{UpTo: units.Microseconds(limit), Idle: count(&idle), Urgent: count(&urgent), Bulk: count(&bulk)})
	}
	return all
}
