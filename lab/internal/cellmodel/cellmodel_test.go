package cellmodel_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/lab/internal/cellmodel"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

func mini(t testing.TB) *profile.Cells {
	t.Helper()
	return must.Get(profile.CellHosts.Load("mini"))(t)
}

func run(t testing.TB, o cellmodel.Options) *cellmodel.Result {
	t.Helper()
	return must.Get(cellmodel.Run(o))(t)
}

// platforms are MINI and others whose steps differ by up to a hundred times.
func platforms() *rapid.Generator[*profile.Cells] {
	span := func(r *rapid.T, name string) profile.Time {
		return profile.Time(rapid.IntRange(10, 1000).Draw(r, name)) * 1000
	}
	return rapid.Custom(func(r *rapid.T) *profile.Cells {
		return &profile.Cells{Name: "any", Send: span(r, "send"), Receive: span(r, "receive"), Path: span(r, "path"),
			Bytes: 56, Store: span(r, "store"), Turnaround: span(r, "turnaround")}
	})
}

// TestAgainstFormulas: what the papers do not give is held against what follows from the
// steps, on any platform: a chain of steps takes as long as all of them together, a stream
// as its slowest step, and whoever sends and receives does both one after the other.
func TestAgainstFormulas(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := platforms().Draw(r, "platform")
		bytes := rapid.IntRange(1, 3000).Draw(r, "bytes")
		n := rapid.IntRange(1, 20).Draw(r, "participants")
		count := profile.Time(cells.Count(bytes))
		one := p.Store + p.Send + p.Path + p.Receive
		slowest := max(p.Send, p.Receive)
		long := one + (count-1)*slowest
		same := func(what string, got, want profile.Time) {
			if d := got - want; d < -1 || d > 1 { // means are rounded
				r.Fatalf("%s: %d ps, want %d", what, got, want)
			}
		}
		same("single", run(t, cellmodel.Options{Platform: p, Scenario: "single"}).OneWay, one)
		m := run(t, cellmodel.Options{Platform: p, Scenario: "message", Bytes: bytes})
		same("message", m.OneWay, long)
		if count > 1 {
			same("interval of a message", m.Interval, slowest)
		}
		same("bounce", run(t, cellmodel.Options{Platform: p, Scenario: "bounce", Bytes: bytes}).RoundTrip, 2*(long+p.Turnaround))

		// A store for each message may be slower than its cells.
		s := run(t, cellmodel.Options{Platform: p, Scenario: "stream", Bytes: bytes})
		same("stream", s.Interval, max(slowest, p.Store/count))
		if want := s.Total * float64(bytes) / float64(count*56); math.Abs(s.Data/want-1) > 1e-9 {
			r.Fatalf("data %v, want %v", s.Data, want)
		}

		b := run(t, cellmodel.Options{Platform: p, Scenario: "barrier", Participants: n})
		rest := profile.Time(n - 1)
		same("barrier", b.Barrier, (rest+1)*(p.Send+p.Receive))
		same("barrier, all of it", b.RoundTrip, 2*one+p.Turnaround+rest*p.Receive+rest*max(p.Send, p.Store))
		c := run(t, cellmodel.Options{Platform: p, Scenario: "multicast", Participants: n})
		same("multicast", c.OneWay, one+rest*max(p.Send, p.Store))
		if words := int(count) * 6; run(t, cellmodel.Options{Platform: p, Scenario: "multicast", Bytes: bytes, Participants: n}).Stores != words+n {
			r.Fatalf("not %d stores", words+n)
		}
	})
}

// TestDuplex: NICs that always have both to do send as many cells as they receive, however
// their steps compare.
func TestDuplex(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := platforms().Draw(r, "platform")
		const bytes = 4000
		got := run(t, cellmodel.Options{Platform: p, Scenario: "duplex", Bytes: bytes}).Interval
		want := max(p.Send+p.Receive, p.Store/profile.Time(cells.Count(bytes)))
		// Cells come in bursts if they are long under way: with a path of 1 us and steps of 10 ns
		// the measure has 10.1 % of its beginning and end in it.
		if math.Abs(float64(got)/float64(want)-1) > 0.15 {
			r.Fatalf("a cell every %d ps each way, want %d", got, want)
		}
	})
}

// TestPriority: an urgent cell waits for at most one other cell at the sender and one at the
// receiver, and at some phase nearly for one; the message is later by what they take.
func TestPriority(t *testing.T) {
	p := mini(t)
	alone := run(t, cellmodel.Options{Platform: p, Scenario: "single"}).OneWay
	r := run(t, cellmodel.Options{Platform: p, Scenario: "priority"})
	if wait := r.Urgent - alone; wait >= p.Send || wait < p.Send*9/10 {
		t.Errorf("waits up to %d ps for cells of %d", wait, p.Send)
	}
	urgent := profile.Time(0)
	for _, l := range r.Transfers {
		if l.Step == cells.High {
			urgent++
		}
	}
	m := run(t, cellmodel.Options{Platform: p, Scenario: "message", Bytes: 8152})
	if r.OneWay != m.OneWay+urgent*p.Send || urgent < 20 {
		t.Errorf("%d ps beside %d urgent cells, %d alone", r.OneWay, urgent, m.OneWay)
	}
	rapid.Check(t, func(r *rapid.T) {
		p := platforms().Draw(r, "platform")
		alone := p.Store + p.Send + p.Path + p.Receive
		got := run(t, cellmodel.Options{Platform: p, Scenario: "priority"}).Urgent
		// A receiver that is slower than the sender has cells waiting, and takes them in order.
		if got < alone || p.Receive <= p.Send && got > alone+p.Send+p.Receive {
			r.Fatalf("%d ps, %d alone", got, alone)
		}
	})
}

// TestTransfers: in every scenario each NIC does one thing at a time, each cell is sent once
// and received once, no sooner than its way is long, and a second run is the same.
func TestTransfers(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := rapid.SampledFrom(cellmodel.Scenarios()).Draw(r, "scenario")
		p := platforms().Draw(r, "platform")
		o := cellmodel.Options{Platform: p, Scenario: s.Name, Bytes: rapid.IntRange(1, min(s.MaxBytes, 500)).Draw(r, "bytes")}
		if s.Participants > 0 {
			o.Participants = rapid.IntRange(1, 9).Draw(r, "participants")
		}
		got := run(t, o)
		if again := run(t, o); !slices.Equal(again.Transfers, got.Transfers) {
			r.Fatal("two runs differ")
		}
		free := map[int]profile.Time{}
		type key struct{ message, bytes int }
		underWay := map[key][]profile.Time{}
		for _, l := range got.Transfers {
			if l.Start < free[l.Host] {
				r.Fatalf("host %d does two things at %d", l.Host, l.Start)
			}
			free[l.Host] = l.End
			k := key{l.Message, l.Bytes}
			if l.Step != cells.Receive {
				underWay[k] = append(underWay[k], l.End)
				continue
			}
			if len(underWay[k]) == 0 || l.Start < underWay[k][0]+p.Path {
				r.Fatalf("%+v was not sent, or comes too early", l)
			}
			underWay[k] = underWay[k][1:]
		}
		for k, left := range underWay {
			if len(left) > 0 {
				r.Fatalf("%d cells of message %d do not arrive", len(left), k.message)
			}
		}
	})
}

// TestGreatest: the largest scenarios end.
func TestGreatest(t *testing.T) {
	p := mini(t)
	for _, o := range []cellmodel.Options{
		{Platform: p, Scenario: "barrier", Participants: cellmodel.MaxParticipants},
		{Platform: p, Scenario: "stream", Bytes: cells.MaxPDU}, {Platform: p, Scenario: "stream", Bytes: 1},
	} {
		if r := run(t, o); len(r.Transfers) < 1000 {
			t.Errorf("%+v: %d transfers", o, len(r.Transfers))
		}
	}
}

// TestContention: a host that keeps up never says stop. One that does not carries what it can store,
// and loses nothing if it says stop; if it does not, each channel counts what it has lost.
func TestContention(t *testing.T) {
	p := mini(t)
	for _, c := range []struct {
		busy  float64
		never bool
	}{{0, false}, {20, false}, {50, false}, {90, false}, {0, true}, {50, true}, {90, true}} {
		r := run(t, cellmodel.Options{Platform: p, Scenario: "contention", Busy: c.busy, NeverStop: c.never})
		sent, received, lost := 0, 0, 0
		for _, x := range r.Transfers {
			if x.Step == cells.Receive {
				received++
			} else {
				sent++
			}
		}
		for _, l := range r.Lost {
			lost += l.Cells
		}
		should.Be(t, sent, received+lost, "%+v: cells sent, %d received and %d lost", c, received, lost)
		interval := max(0.4, 0.3/(1-c.busy/100)) // us: cells come, or are stored
		slow := interval > 0.4
		if want := 8 * cells.PayloadSize / interval / 1000; !(slow && c.never) && math.Abs(r.Data/want-1) > 0.01 {
			t.Errorf("%+v: %v Gb/s, want %v", c, r.Data, want)
		}
		if (r.Stops > 0) != (slow && !c.never) || (lost > 0) != (slow && c.never) {
			t.Errorf("%+v: %d stops, %d lost", c, r.Stops, lost)
		}
		if slow && c.never && (len(r.Lost) != 2 || r.Lost[0].Channel != 1 || r.Lost[1].Channel != 2 || r.Highest != 1024) {
			t.Errorf("%+v: %+v lost, at most %d in the FIFO", c, r.Lost, r.Highest)
		}
	}
}
