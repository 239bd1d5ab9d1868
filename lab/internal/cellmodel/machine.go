package cellmodel

import (
	"errors"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/lab/internal/events"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

type message struct {
	number, channel int
	from, to        int // hosts
	cutter          cells.Cutter
	stored          profile.Time // when the program's store began
	delivered       profile.Time // when the receiver's NIC had set the channel's flag
	broken          bool         // a cell of it was lost
	then            func()       // at that time
}

// cell is one that has been sent.
type cell struct {
	of    *message
	bytes int
	last  bool
}

// nic is one host's. It does one thing at a time.
type nic struct {
	busy     bool
	received []cell
	high     []*message
	low      []*message
	stopped  bool         // its peer has said stop
	next     profile.Time // when the host's program can begin its next store
}

type machine struct {
	*profile.Cells
	events.Clock
	nics      []nic
	messages  int
	transfers []Transfer
	payload   [cells.PayloadSize]byte // that cells are cut into; it is not read
	fifo      fifo
	stored    profile.Time // that a cell takes to be stored
	err       error        // a message could not be sent
}

// Ranks of what is to be done at the same time: NICs decide when all the rest is.
const (
	happens = iota
	decides
)

func (m *machine) run() {
	for m.Next() {
	}
}

// post makes the program of a host send a message: a store, as soon as the ones before are
// done, and then the message is in its FIFO. then is called when the receiver can see it.
func (m *machine) post(from, to, channel int, step cells.Step, bytes int, then func()) *message {
	n := &m.nics[from]
	m.messages++
	msg := &message{number: m.messages, channel: channel, from: from, to: to, then: then, stored: max(m.Now, n.next)}
	if err := msg.cutter.Start(bytes, 0); err != nil {
		m.err = errors.Join(m.err, err)
		return msg
	}
	n.next = msg.stored + m.Store
	m.At(n.next, happens, func() {
		if step == cells.High {
			n.high = append(n.high, msg)
		} else {
			n.low = append(n.low, msg)
		}
		m.wake(from)
	})
	return msg
}

// wake makes a NIC decide what to do once all has happened that happens now.
func (m *machine) wake(host int) { m.At(m.Now, decides, func() { m.decide(host) }) }

// decide puts the question that package engine puts, and carries the answer out.
func (m *machine) decide(host int) {
	n := &m.nics[host]
	if n.busy {
		return
	}
	switch step := (cells.Waiting{Received: len(n.received) > 0, High: len(n.high) > 0 && !n.stopped, Low: len(n.low) > 0 && !n.stopped}).Next(); step {
	case cells.Receive:
		c := n.received[0]
		n.received = n.received[1:]
		if m.fifo.told && len(n.received) <= startAt { // the peer that was stopped may go on
			m.fifo.told = false
			m.tell(c.of.from, false)
		}
		m.work(host, step, c, m.stored, func() { m.arrived(c) })
	case cells.High:
		c := m.nextCell(&n.high)
		m.work(host, step, c, m.Send, func() { m.sent(c) })
	case cells.Low:
		c := m.nextCell(&n.low)
		m.work(host, step, c, m.Send, func() { m.sent(c) })
	}
}

// nextCell takes a cell off the first message of a FIFO.
func (m *machine) nextCell(fifo *[]*message) cell {
	c := cell{of: (*fifo)[0]}
	c.bytes, c.last = c.of.cutter.Next()
	c.of.cutter.Seal(&m.payload)
	if c.last {
		*fifo = (*fifo)[1:]
	}
	return c
}

func (m *machine) work(host int, step cells.Step, c cell, takes profile.Time, done func()) {
	m.nics[host].busy = true
	m.transfers = append(m.transfers, Transfer{Host: host, Channel: c.of.channel, Message: c.of.number, Step: step,
		Start: m.Now, End: m.Now + takes, Bytes: c.bytes})
	m.At(m.Now+takes, happens, func() {
		m.nics[host].busy = false
		done()
		m.wake(host)
	})
}

func (m *machine) sent(c cell) {
	m.At(m.Now+m.Path, happens, func() {
		m.admit(c)
		m.wake(c.of.to)
	})
}

func (m *machine) arrived(c cell) {
	if !c.last {
		return
	}
	c.of.delivered = m.Now
	if c.of.then != nil {
		c.of.then()
	}
}

// oneWay is the time that a message took that was delivered.
func (msg *message) oneWay() profile.Time { return msg.delivered - msg.stored }

// answer lets a program that polls go on after its turn-around.
func (m *machine) answer(what func()) { m.At(m.Now+m.Turnaround, happens, what) }
