// Package cellmodel sends cells through NICs with channels, in virtual time. The cells are
// cut by [cells.Cutter], and which one is next [cells.Waiting] says: the code that sends
// real cells, under a clock whose steps cost what a platform says.
//
// What is modelled: programs, which need a store for each message and some time to answer
// one; a NIC for each host, which sends or receives one cell at a time, with a FIFO of
// messages for each priority and one of received cells; and paths between the NICs, which
// take a fixed time and are never in each other's way. A receive FIFO fills in scenario
// "contention" alone, where other users of memory delay what a NIC stores: it says stop and start, or
// loses cells. In the others received cells wait for one cell sent at most. What is not modelled: caches.
//
// Results are exact integers of picoseconds: the same options give the same bytes.
package cellmodel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Lengths of messages, in bytes.
const (
	oneCell    = cells.PayloadSize - cells.TrailerSize                          // fills a cell together with its trailer
	page       = 4096                                                           // a page of data
	doublePage = 2*page/cells.PayloadSize*cells.PayloadSize - cells.TrailerSize // fills a double page with whole cells
)

// MaxParticipants is the number of channels that a NIC has for programs: channel 0 is the
// kernel's.
const MaxParticipants = 4095

// Scenario is something that hosts do with cells.
type Scenario struct {
	Name    string
	Summary string
	// Bytes of each message unless others are asked for, and the most that it may have.
	Bytes, MaxBytes int
	// Participants unless others are asked for; 0 = the scenario has none.
	Participants int

	run func(*machine, Options) Result
}

var scenarios = []Scenario{
	{"single", "one cell of high priority", oneCell, oneCell, 0, (*machine).single},
	{"stream", "messages of low priority, one behind the other", doublePage, cells.MaxPDU, 0, (*machine).stream},
	{"message", "one message of low priority", page, cells.MaxPDU, 0, (*machine).message},
	{"bounce", "two programs answer each other, high priority", oneCell, cells.MaxPDU, 0, (*machine).bounce},
	{"barrier", "participants send a cell to a coordinator, which answers all of them when it has all", oneCell, oneCell, 16, (*machine).barrier},
	{"multicast", "one page sent on a channel to each participant, high priority", oneCell, cells.MaxPDU, 16, (*machine).multicast},
	{"priority", "cells of high priority while a message of low priority is being sent", doublePage, cells.MaxPDU, 0, (*machine).priority},
	{"duplex", "two hosts send a stream each to each other, low priority", doublePage, cells.MaxPDU, 0, (*machine).duplex},
	{"contention", "two channels into a host whose memory others use, low priority: stop and start, or lost cells", doublePage, cells.MaxPDU, 0, (*machine).contention},
}

// Scenarios returns all of them.
func Scenarios() []Scenario { return scenarios }

// Names returns the scenarios' names with commas between them.
func Names() string {
	names := make([]string, len(scenarios))
	for i, s := range scenarios {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

// Options of a run, by the flags of a command that asks for one. What is 0 is the scenario's own.
type Options struct {
	Platform     *profile.Cells
	Scenario     string  `flag:"scenario" default:"single" help:"what the hosts do: {scenarios}"`
	Bytes        int     `flag:"bytes" help:"bytes of each message, without AAL5's trailer (default: the scenario's)"`
	Participants int     `flag:"participants" help:"hosts that meet in a barrier, or that a multicast is for (default: 16)"`
	Busy         float64 `flag:"busy" help:"percent of the receiving host's memory that others use, 0 to {busy}, with scenario contention"`
	NeverStop    bool    `flag:"never-stop" help:"no peer is told to stop while the receive FIFO is nearly full, with scenario contention"`
}

// Transfer holds what a NIC did with one cell.
type Transfer struct {
	Host    int          `json:"host" help:"number of the NIC"`
	Channel int          `json:"channel"` // from 1; message and answer have the same
	Message int          `json:"message"` // number of the message, counted from 1 as they are posted
	Step    cells.Step   `json:"step" help:"receive, high or low"`
	Start   profile.Time `json:"start_us"`
	End     profile.Time `json:"end_us"`
	Bytes   int          `json:"bytes"` // of the message, in this cell
}

// Result of a run; what the scenario does not have is 0. Times are from the beginning of
// the first store.
type Result struct {
	// OneWay is the time from a program's store until the receiving program can see the whole message.
	OneWay profile.Time `json:"one_way_us,omitempty"`
	// Interval is the time between cells that arrive one behind the other.
	Interval profile.Time `json:"interval_us,omitempty"`
	// Data is the rate of messages each way in Gb/s, without trailers and padding.
	Data float64 `json:"data_gb_s,omitempty"`
	// Total is the rate of cells each way in Gb/s, with their headers as inside a NIC.
	Total float64 `json:"total_gb_s,omitempty"`
	// RoundTrip is the time from a store until the answer was answered, or has come in a barrier.
	RoundTrip profile.Time `json:"round_trip_us,omitempty"`
	// Barrier is the time that the coordinator's NIC works for a barrier.
	Barrier profile.Time `json:"barrier_us,omitempty"`
	// Urgent is OneWay of the slowest cell of high priority beside a message of low priority.
	Urgent profile.Time `json:"urgent_us,omitempty"`
	// Stores are the words that programs write to multicast one page, or to the FIFOs in a barrier.
	Stores int `json:"stores,omitempty" help:"words that are written: the page's, and one for each participant"`
	Sent   int `json:"cells_sent"`
	// Whole, Stops, Highest and Lost are of scenario contention.
	Whole     int        `json:"messages_whole,omitempty" help:"messages of which no cell was lost"`
	Stops     int        `json:"stops,omitempty" help:"how often the receiver has said stop"`
	Highest   int        `json:"fifo_cells_highest,omitempty"`
	Lost      []Lost     `json:"lost,omitempty" help:"cells that found the receive FIFO full, by channel"`
	Transfers []Transfer `json:"transfers" help:"of each cell at each NIC" text:"count"`
}

// Run carries a scenario out. It fails with *option.Error, which names the option of the
// command.
func Run(o Options) (*Result, error) {
	i := slices.IndexFunc(scenarios, func(s Scenario) bool { return s.Name == o.Scenario })
	if i < 0 {
		return nil, &option.Error{Option: "--scenario", Value: o.Scenario, Allowed: Names()}
	}
	s := &scenarios[i]
	o.Bytes, o.Participants = cmp.Or(o.Bytes, s.Bytes), cmp.Or(o.Participants, s.Participants)
	switch contended := s.Name == "contention"; {
	case o.Bytes < 1 || o.Bytes > s.MaxBytes:
		return nil, &option.Error{Option: "--bytes", Value: fmt.Sprint(o.Bytes), Allowed: fmt.Sprintf("1 to %d, with scenario %s", s.MaxBytes, s.Name)}
	case s.Participants == 0 && o.Participants != 0:
		return nil, &option.Error{Option: "--participants", Value: fmt.Sprint(o.Participants), Allowed: "with scenarios barrier and multicast"}
	case s.Participants != 0 && (o.Participants < 1 || o.Participants > MaxParticipants):
		return nil, &option.Error{Option: "--participants", Value: fmt.Sprint(o.Participants), Allowed: fmt.Sprintf("1 to %d", MaxParticipants)}
	case !contended && o.Busy != 0:
		return nil, &option.Error{Option: "--busy", Value: fmt.Sprint(o.Busy), Allowed: "with scenario contention"}
	case !contended && o.NeverStop:
		return nil, &option.Error{Option: "--never-stop", Value: "true", Allowed: "with scenario contention"}
	case !(o.Busy >= 0 && o.Busy <= MaxBusy):
		return nil, &option.Error{Option: "--busy", Value: fmt.Sprint(o.Busy), Allowed: fmt.Sprintf("0 to %d percent", MaxBusy)}
	}
	m := &machine{Cells: o.Platform, nics: make([]nic, 1+max(o.Participants, 1)), stored: o.Platform.Receive}
	r := s.run(m, o)
	if m.err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, m.err)
	}
	r.Transfers = m.transfers
	for _, t := range r.Transfers {
		if t.Step != cells.Receive {
			r.Sent++
		}
	}
	return &r, nil
}
