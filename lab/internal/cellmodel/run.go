package cellmodel

import (
	"slices"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// The hosts of scenarios with two. A coordinator is the first one, and participants are the
// others.
const (
	here = iota
	there
)

// Lengths of runs.
const (
	streamCells = 500 // of a stream, at least
	leastStream = 4   // messages of a stream
	rounds      = 4   // of a bounce
	phases      = 20  // of a cell's time, at which urgent cells come
)

func (m *machine) single(o Options) Result {
	msg := m.post(here, there, 1, cells.High, o.Bytes, nil)
	m.run()
	return Result{OneWay: msg.oneWay()}
}

func (m *machine) message(o Options) Result {
	msg := m.post(here, there, 1, cells.Low, o.Bytes, nil)
	m.run()
	r := Result{OneWay: msg.oneWay(), Data: gigabits(o.Bytes, msg.oneWay())}
	if n := cells.Count(o.Bytes); n > 1 {
		r.Interval = m.between(n)
	}
	return r
}

// between is the mean time between the cells that the second host received, n of them.
func (m *machine) between(n int) profile.Time {
	var begin, end profile.Time
	for _, t := range m.transfers {
		if t.Host != there || t.Step != cells.Receive {
			continue
		}
		if begin == 0 {
			begin = t.End
		}
		end = t.End
	}
	return (end - begin) / profile.Time(n-1)
}

func (m *machine) stream(o Options) Result {
	all := m.postStream(here, there, o.Bytes)
	m.run()
	return m.rates(all, o.Bytes)
}

func (m *machine) duplex(o Options) Result {
	m.postStream(there, here, o.Bytes)
	all := m.postStream(here, there, o.Bytes)
	m.run()
	return m.rates(all, o.Bytes)
}

func (m *machine) postStream(from, to, bytes int) (all []*message) {
	for range max(leastStream, streamCells/cells.Count(bytes)) {
		all = append(all, m.post(from, to, 1, cells.Low, bytes, nil))
	}
	return all
}

// rates are those of the second half of a stream: the first cells find idle NICs.
func (m *machine) rates(all []*message, bytes int) Result {
	half, last := len(all)/2, len(all)-1
	count := last - half
	took := all[last].delivered - all[half].delivered
	n := count * cells.Count(bytes)
	return Result{Interval: took / profile.Time(n), Data: gigabits(count*bytes, took), Total: gigabits(n*m.Bytes, took)}
}

func gigabits(bytes int, in profile.Time) float64 { return 8 * float64(bytes) / float64(in) * 1e3 }

func (m *machine) bounce(o Options) Result {
	var end profile.Time
	left := 2 * rounds
	var send func()
	send = func() {
		if left == 0 {
			end = m.Now
			return
		}
		left--
		from := left%2 ^ 1 // the first host begins
		m.post(from, 1-from, 1, cells.High, o.Bytes, func() { m.answer(send) })
	}
	send()
	m.run()
	r := Result{RoundTrip: end / rounds}
	r.Data = gigabits(o.Bytes, r.RoundTrip)
	return r
}

func (m *machine) barrier(o Options) Result {
	waited := 0
	var last profile.Time
	for i := 1; i <= o.Participants; i++ {
		m.post(i, here, i, cells.High, o.Bytes, func() {
			if waited++; waited == o.Participants {
				m.answer(func() { m.toAll(o, func() { last = m.Now }) })
			}
		})
	}
	m.run()
	r := Result{RoundTrip: last, Stores: stores(o)}
	for _, t := range m.transfers {
		if t.Host == here {
			r.Barrier += t.End - t.Start
		}
	}
	return r
}

// toAll sends one page to each participant: virtual multicast.
func (m *machine) toAll(o Options, then func()) {
	for i := 1; i <= o.Participants; i++ {
		m.post(here, i, i, cells.High, o.Bytes, then)
	}
}

// stores is the number of words that a program writes for a virtual multicast: those of the page,
// and one for each channel.
func stores(o Options) int {
	const word = 8
	return cells.Count(o.Bytes)*cells.PayloadSize/word + o.Participants
}

func (m *machine) multicast(o Options) Result {
	var begin, end profile.Time
	m.toAll(o, func() {
		if begin == 0 {
			begin = m.Now
		}
		end = m.Now
	})
	m.run()
	r := Result{OneWay: end, Stores: stores(o)}
	if o.Participants > 1 {
		r.Interval = (end - begin) / profile.Time(o.Participants-1) / profile.Time(cells.Count(o.Bytes))
	}
	return r
}

// priority posts urgent cells at all phases of a cell of the long message, as long as that
// lasts.
func (m *machine) priority(o Options) Result {
	long := m.post(here, there, 1, cells.Low, o.Bytes, nil)
	var urgent []*message
	for k := range profile.Time(phases) {
		m.At(m.Store+k*(3*m.Send+m.Send/phases), happens, func() {
			if long.cutter.Active() {
				urgent = append(urgent, m.post(here, there, 2, cells.High, oneCell, nil))
			}
		})
	}
	m.run()
	r := Result{OneWay: long.oneWay()}
	for _, u := range urgent {
		r.Urgent = max(r.Urgent, u.oneWay())
	}
	return r
}

// The receive FIFO of scenario "contention" in cells, and the levels at which it says stop and start:
// those of this project's NICs (SPEC.md 17). The paper leaves the lower one open.
const (
	fifoCells = 1024
	stopAt    = 128
	startAt   = 32
)

// Lengths of scenario "contention": cells on each of its channels, so that the FIFO can fill.
const (
	contendedCells    = 4000
	contendedChannels = 2
)

// MaxBusy is the greatest share of a host's memory that others may take, in percent.
const MaxBusy = 95

// Lost are the cells of a channel that found the receive FIFO full.
type Lost struct {
	Channel int `json:"channel"`
	Cells   int `json:"cells"`
}

// fifo is the state of the one receive FIFO that can be full.
type fifo struct {
	limited bool
	never   bool // no peer is told to stop
	told    bool // the peer has been told to stop
	stops   int
	highest int
	lost    []Lost // by channel
}

// contention sends on two channels to a host whose memory others use, too: what is stored of a cell
// waits for them. Cells come faster than they are stored, so that the FIFO fills.
func (m *machine) contention(o Options) Result {
	m.fifo = fifo{limited: true, never: o.NeverStop}
	m.stored = profile.Time(float64(m.Receive) / (1 - o.Busy/100))
	var all []*message
	for range max(1, contendedCells/cells.Count(o.Bytes)) {
		for channel := range contendedChannels {
			all = append(all, m.post(here, there, 1+channel, cells.Low, o.Bytes, nil))
		}
	}
	m.run()
	r := Result{Stops: m.fifo.stops, Highest: m.fifo.highest, Lost: m.fifo.lost}
	var last profile.Time
	for _, t := range m.transfers {
		if t.Step == cells.Receive {
			last = t.End
		}
	}
	for _, msg := range all {
		if msg.delivered != 0 && !msg.broken {
			r.Whole++
		}
	}
	r.Data = gigabits(r.Whole*o.Bytes, last)
	return r
}

// admit takes a cell that comes in, or loses it, and says stop in time.
func (m *machine) admit(c cell) {
	to := &m.nics[c.of.to]
	if m.fifo.limited && len(to.received) == fifoCells {
		c.of.broken = true
		m.lose(c.of.channel)
		return
	}
	to.received = append(to.received, c)
	m.fifo.highest = max(m.fifo.highest, len(to.received))
	if m.fifo.limited && !m.fifo.never && !m.fifo.told && len(to.received) >= stopAt {
		m.fifo.told = true
		m.fifo.stops++
		m.tell(c.of.from, true)
	}
}

// tell sends a peer stop or start, which takes as long as a cell's way.
func (m *machine) tell(host int, stop bool) {
	m.At(m.Now+m.Path, happens, func() {
		m.nics[host].stopped = stop
		m.wake(host)
	})
}

func (m *machine) lose(channel int) {
	at, found := slices.BinarySearchFunc(m.fifo.lost, channel, func(l Lost, channel int) int { return l.Channel - channel })
	if !found {
		m.fifo.lost = slices.Insert(m.fifo.lost, at, Lost{Channel: channel})
	}
	m.fifo.lost[at].Cells++
}
