// Package bridge has the table of a learning bridge: which stations are behind which of
// its ports (IEEE 802.1D, 7.8 and 7.9).
package bridge

import (
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// Flood is the port of frames that go to all ports but their own.
const Flood = -1

// Refused is the port of frames that go nowhere.
const Refused = -2

const (
	// DefaultAge is the time for which a station is remembered that sends nothing (802.1D, table 7-5).
	DefaultAge = 300 * time.Second
	// HoldDown is the time that a station must have been quiet at one port before it is believed
	// at another: less, and the frame is the bridge's own, come back by a loop.
	HoldDown = time.Second
)

// Table remembers stations. Its methods may be called from several goroutines.
type Table struct {
	age  time.Duration
	most int

	mu       sync.Mutex
	stations map[ethernet.MAC]station
	swept    time.Duration // when all that are too old were last removed
	counts   Counts
}

type station struct {
	port int
	seen time.Duration
}

// Counts describes the work of a table.
type Counts struct {
	// Stations that it knows now, those that are too old and not yet removed included.
	Stations int `json:"stations" help:"known at the end"`
	// Moved stations were believed at another port.
	Moved uint64 `json:"moved"`
	// BadSources are frames from a group's address or zero, Reserved those to addresses
	// that bridges keep to themselves (802.1D, table 7-10), Local those whose receiver is
	// behind the port that they came by.
	BadSources uint64 `json:"bad_sources"`
	Reserved   uint64 `json:"reserved"`
	Local      uint64 `json:"local" help:"receiver and sender behind one port"`
	// Loops are frames from a station that was just at another port.
	Loops uint64 `json:"loops"`
	// Full counts the stations that could not be remembered for lack of room.
	Full uint64 `json:"full"`
}

// NewTable makes a table of at most so many stations, which forgets them after age.
func NewTable(most int, age time.Duration) *Table {
	return &Table{age: age, most: most, stations: make(map[ethernet.MAC]station, most)}
}

// Counts returns what the table has done.
func (t *Table) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	c.Stations = len(t.stations)
	return c
}

// Ports says for each of frames, which came by port at a time, where it goes: a port,
// Flood or Refused. It writes that into to, which is as long, and learns from where frames
// come. Time is since any moment, and does not go back.
func (t *Table) Ports(port int, now time.Duration, frames [][]byte, to []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, f := range frames {
		to[i] = t.port(port, now, f)
	}
}

func (t *Table) port(port int, now time.Duration, frame []byte) int {
	if len(frame) < ethernet.HeaderSize {
		t.counts.BadSources++
		return Refused
	}
	destination, source := ethernet.MAC(frame), ethernet.MAC(frame[6:])
	switch {
	case !source.IsStation():
		t.counts.BadSources++
		return Refused
	case !t.learn(source, port, now):
		t.counts.Loops++
		return Refused
	case destination.IsMulticast():
		if [5]byte(destination[:5]) == [5]byte{0x01, 0x80, 0xc2} && destination[5]&0xf0 == 0 {
			t.counts.Reserved++
			return Refused
		}
		return Flood
	}
	s, known := t.stations[destination]
	switch {
	case !known || now-s.seen > t.age:
		return Flood
	case s.port == port:
		t.counts.Local++
		return Refused
	}
	return s.port
}

// learn remembers that a station is behind a port, and reports whether it can be there.
func (t *Table) learn(source ethernet.MAC, port int, now time.Duration) bool {
	s, known := t.stations[source]
	switch {
	case known && s.port != port && now-s.seen < HoldDown:
		return false
	case known && s.port != port && now-s.seen <= t.age:
		t.counts.Moved++
	case !known && len(t.stations) >= t.most && !t.sweep(now):
		t.counts.Full++
		return true
	}
	t.stations[source] = station{port, now}
	return true
}

// sweep removes stations that are too old, at most once a second, and reports whether
// there is room.
func (t *Table) sweep(now time.Duration) bool {
	if t.swept == 0 || now-t.swept >= time.Second {
		t.swept = max(now, 1)
		for m, s := range t.stations {
			if now-s.seen > t.age {
				delete(t.stations, m)
			}
		}
	}
	return len(t.stations) < t.most
}
