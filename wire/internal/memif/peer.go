package memif

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/trapeze-nic/trapeze/internal/memfile"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// patientSteps is the number of steps that may take as long as a step may: a peer that is
// slow at each could keep others away for minutes.
const patientSteps = 4

// peer is a conversation with a peer, from its first message on.
type peer struct {
	keeper *keeper
	conn   *protocol.Conn
	name   string // its own
	// take takes the next message: it is the state of the conversation. It owns the descriptor,
	// which is -1 for most messages.
	take func(body protocol.Body, fd int) error
	// until is when the next message must have come, and ends when the connection must
	// have been made; until is zero once it is.
	until, ends time.Time
	up          bool // the connection is made
	ready       bool // it has sent something
	session     *session

	// Of a server: what the client has brought.
	mapped             uint64       // size of all regions in bytes
	toServer, toClient []ring.Place // places of rings

	// Of a client: what it has still to hand over, and from where.
	steps  []step
	layout ring.Layout
	file   int
}

// step is a message for the server, with a descriptor or -1.
type step struct {
	body protocol.Body
	fd   int
}

// wait sets how long the next message may take.
func (q *peer) wait() {
	if q.until = time.Now().Add(q.keeper.port.options.Timeout); q.until.After(q.ends) {
		q.until = q.ends
	}
	if q.up {
		q.until = time.Time{}
	}
}

// judge gives what Receive returned the errors of this package.
func judge(body protocol.Body, fd int, err error) (protocol.Body, int, error) {
	var bad *protocol.Error
	switch {
	case errors.As(err, &bad):
		return nil, -1, fmt.Errorf("%w: %w", ErrMessage, err)
	case errors.Is(err, io.EOF):
		return nil, -1, ends.ErrGone
	case err != nil:
		return nil, -1, fmt.Errorf("%w: %w", ends.ErrGone, err)
	}
	if d, ok := body.(protocol.Disconnect); ok {
		return nil, -1, fmt.Errorf("%w: it says %q, code %d", ErrRefused, d.Reason, d.Code)
	}
	return body, fd, nil
}

// send sends a message. A peer that does not read has no room for it.
func (q *peer) send(body protocol.Body, fd int) error {
	err := q.conn.Send(body, fd)
	switch {
	case errors.Is(err, protocol.ErrAgain):
		return fmt.Errorf("%w: it does not read", ErrTimeout)
	case err != nil:
		return fmt.Errorf("%w: %w", ends.ErrGone, err)
	}
	return nil
}

// unexpected is a message at the wrong time. It closes its file descriptor.
func unexpected(body protocol.Body, fd int, want string) error {
	closeFile(fd)
	return fmt.Errorf("%w: %s where %s should come", ErrMessage, protocol.Encode(body).Type(), want)
}

func closeFile(fd int) {
	if fd >= 0 {
		_ = passedfd.Close(fd) // the connection ends, or fd is ours, or memory
	}
}

// reasonFor is the text for a peer when a connection ends with err; empty if
// there is nothing to tell, as the peer is gone or has said it.
func reasonFor(err error) string {
	var message *protocol.Error
	var violation *ring.Violation
	var refusal *refusal
	switch {
	case errors.As(err, &message):
		return message.Error()
	case errors.As(err, &violation):
		return violation.Error()
	case errors.As(err, &refusal):
		return refusal.why
	case errors.Is(err, ErrUnplugged):
		return "interface is down"
	case errors.Is(err, ends.ErrGone), errors.Is(err, ErrRefused):
		return ""
	}
	return err.Error()
}

// init is a server's state at first: the client says what it wants.
func (q *peer) init(body protocol.Body, fd int) error {
	m, ok := body.(protocol.Init)
	if !ok {
		return unexpected(body, fd, "INIT")
	}
	k := q.keeper
	o := &k.port.options
	q.name = m.Name
	why := ""
	switch {
	case m.Version != protocol.Version:
		why = "unsupported version"
	case m.ID != o.ID:
		why = "no such interface id"
	case !k.port.plugged():
		why = "interface is down"
	case k.guest != nil:
		why = "already connected"
	case m.Mode != protocol.ModeEthernet:
		why = "only Ethernet mode"
	case o.Secret != "" && m.Secret == "":
		why = "secret required"
	// In a time that does not depend on what is in them.
	case o.Secret != "" && subtle.ConstantTimeCompare([]byte(o.Secret), []byte(m.Secret)) == 0:
		why = "incorrect secret"
	}
	if why != "" {
		return &refusal{why, m}
	}
	k.guest, q.session = q, newSession()
	q.take, q.ends = q.offer, time.Now().Add(patientSteps*o.Timeout)
	return q.send(protocol.Ack{}, -1)
}

// offer is a server's state in which the client brings memory and rings, until it says that that is all.
func (q *peer) offer(body protocol.Body, fd int) error {
	switch m := body.(type) {
	case protocol.AddRegion:
		if err := q.addRegion(m, fd); err != nil {
			return err
		}
	case protocol.AddRing:
		if err := q.addRing(m, fd); err != nil {
			return err
		}
	case protocol.Connect:
		if err := q.open(); err != nil {
			return err
		}
		if err := q.send(protocol.Connected{Interface: q.keeper.port.options.Name}, -1); err != nil {
			return err
		}
		return q.connected(m.Interface)
	default:
		return unexpected(body, fd, "ADD_REGION, ADD_RING or CONNECT")
	}
	return q.send(protocol.Ack{}, -1)
}

// hello is a client's state at first: the server says what it can do. The client lays out memory as far as
// that permits.
func (q *peer) hello(body protocol.Body, fd int) error {
	hello, ok := body.(protocol.Hello)
	if !ok {
		return unexpected(body, fd, "HELLO")
	}
	q.name = hello.Name
	if protocol.Version < hello.MinVersion || protocol.Version > hello.MaxVersion {
		return fmt.Errorf("%w: it speaks versions %#x to %#x, we speak %#x",
			ErrNotWelcome, hello.MinVersion, hello.MaxVersion, protocol.Version)
	}
	o := &q.keeper.port.options
	size := o.Ring
	if hello.MaxLog2 < ring.MaxLog2 {
		size = min(size, 1<<hello.MaxLog2)
	}
	q.layout = o.layout(min(o.Queues, int(hello.MaxC2S)+1), min(o.Queues, int(hello.MaxS2C)+1), size)
	if err := q.bring(); err != nil {
		return err
	}
	q.take = q.acknowledged
	return q.step()
}

// bring makes the session's memory and events, and the steps that hand them to the server.
func (q *peer) bring() error {
	o := &q.keeper.port.options
	s := newSession()
	q.session = s
	// Neither side can cut it off.
	file, memory, err := memfile.Map("memif", q.layout.Size(), memfile.Options{Seals: memfile.Final, Filled: true})
	if err != nil {
		return err
	}
	q.file, s.regions = file, []*region{newRegion(memory)}
	q.layout.Format(memory)
	q.steps = []step{
		{protocol.Init{Version: protocol.Version, ID: o.ID, Mode: protocol.ModeEthernet, Secret: o.Secret, Name: o.Name}, -1},
		{protocol.AddRegion{Index: 0, Size: q.layout.Size()}, file},
	}
	for _, way := range []struct {
		events *[]*event
		c2s    bool
		flags  uint16
		rings  int
	}{{&s.sendEvents, true, protocol.RingC2S, q.layout.C2S}, {&s.receiveEvents, false, 0, q.layout.S2C}} {
		for i := range way.rings {
			e, err := newEvent()
			if err != nil {
				return err
			}
			*way.events = append(*way.events, e)
			q.steps = append(q.steps, step{protocol.AddRing{Flags: way.flags, Index: uint16(i), Offset: q.layout.Offset(way.c2s, i), Log2: q.layout.Log2}, e.fd})
		}
	}
	q.steps = append(q.steps, step{protocol.Connect{Interface: o.Name}, -1})
	return nil
}

// step sends the next message.
func (q *peer) step() error {
	next := q.steps[0]
	q.steps = q.steps[1:]
	return q.send(next.body, next.fd)
}

// acknowledged is a client's state after hello: the server acknowledges one step after the other, and the last
// otherwise.
func (q *peer) acknowledged(body protocol.Body, fd int) error {
	if len(q.steps) > 0 {
		if _, ok := body.(protocol.Ack); !ok {
			return unexpected(body, fd, "ACK")
		}
		return q.step()
	}
	m, ok := body.(protocol.Connected)
	if !ok {
		return unexpected(body, fd, "CONNECTED")
	}
	s, p := q.session, q.keeper.port
	for i := range q.layout.C2S {
		s.senders = append(s.senders, q.layout.Sender(s.regions[0].memory, p.tx.scratch, i))
	}
	for i := range q.layout.S2C {
		s.receivers = append(s.receivers, q.layout.Receiver(s.regions[0].memory, p.rx.scratch, i))
	}
	return q.connected(m.Interface)
}

// connected lets frames flow.
func (q *peer) connected(peerInterface string) error {
	k := q.keeper
	closeFile(q.file)
	q.file = -1
	if !k.port.publish(q.session, q.name, peerInterface) {
		return ErrUnplugged
	}
	q.up = true
	q.take = func(body protocol.Body, fd int) error { return unexpected(body, fd, "DISCONNECT") }
	k.watch = watch{port: k.port, session: q.session}
	k.port.counters.connections.Add(1)
	k.port.Link.Call()
	return nil
}
