package cellmodel

import (
	"slices"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

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

func (m *machine) taken(c cell, left int) {
	if m.fifo.told && left <= startAt {
		m.fifo.told = false
		m.tell(c.of.from, false)
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
