package memif

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// dial connects to the server's socket.
func (p *Port) dial() (*talk, error) {
	conn, err := protocol.Dial(p.options.Socket)
	switch {
	case err == nil:
		return p.newTalk(conn, ""), nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("%w: %w", ends.ErrNotListening, err)
	}
	return nil, err
}

// greet does the client's part of making a connection: it lays out memory as
// far as the server permits, and hands it over.
func (t *talk) greet() (*session, error) {
	hello, err := expect[protocol.Hello](t)
	if err != nil {
		return nil, err
	}
	t.peer = hello.Name
	if protocol.Version < hello.MinVersion || protocol.Version > hello.MaxVersion {
		return nil, fmt.Errorf("%w: it speaks versions %#x to %#x, we speak %#x",
			ErrNotWelcome, hello.MinVersion, hello.MaxVersion, protocol.Version)
	}
	o := &t.port.options
	size := o.Ring
	if hello.MaxLog2 < ring.MaxLog2 {
		size = min(size, 1<<hello.MaxLog2)
	}
	layout := o.layout(min(o.Queues, int(hello.MaxC2S)+1), min(o.Queues, int(hello.MaxS2C)+1), size)
	if err := t.ask(protocol.Init{Version: protocol.Version, ID: o.ID, Mode: protocol.ModeEthernet,
		Secret: o.Secret, Name: o.Name}, -1); err != nil {
		return nil, err
	}
	s := &session{}
	s.users.Store(1)
	if err := t.bring(s, layout); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// bring makes the session's memory and events, and hands them to the server.
func (t *talk) bring(s *session, layout ring.Layout) error {
	memory, file, err := createRegion(layout.Size())
	if err != nil {
		return err
	}
	defer closeFile(file)
	s.regions = append(s.regions, memory)
	layout.Format(memory.memory)
	if err := t.ask(protocol.AddRegion{Index: 0, Size: layout.Size()}, file); err != nil {
		return err
	}
	if s.sendEvents, err = t.bringRings(layout, true, layout.C2S); err != nil {
		return err
	}
	if s.receiveEvents, err = t.bringRings(layout, false, layout.S2C); err != nil {
		return err
	}
	if err := t.send(protocol.Connect{Interface: t.port.options.Name}, -1); err != nil {
		return err
	}
	connected, err := expect[protocol.Connected](t)
	if err != nil {
		return err
	}
	s.peerName, s.peerInterface = t.peer, connected.Interface
	for i := range layout.C2S {
		s.senders = append(s.senders, layout.Sender(memory.memory, t.port.tx.scratch, i))
	}
	for i := range layout.S2C {
		s.receivers = append(s.receivers, layout.Receiver(memory.memory, t.port.rx.scratch, i))
	}
	return nil
}

// bringRings hands the rings of one direction to the server. It returns their
// events even if it fails.
func (t *talk) bringRings(layout ring.Layout, c2s bool, n int) ([]*event, error) {
	var events []*event
	for i := range n {
		e, err := newEvent()
		if err != nil {
			return events, err
		}
		events = append(events, e)
		add := protocol.AddRing{Index: uint16(i), Offset: layout.Offset(c2s, i), Log2: layout.Log2}
		if c2s {
			add.Flags = protocol.RingC2S
		}
		if err := t.ask(add, e.fd); err != nil {
			return events, err
		}
	}
	return events, nil
}
