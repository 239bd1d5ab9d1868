package memif

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/buserror"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// maxRegions bounds the files that a client can have a server map. DPDK and VPP
// have one, or one more for each of their own memory areas.
const maxRegions = 64

// offer has the parts that a client has brought so far.
type offer struct {
	session session
	options *Options
	// mapped is the size of all regions in bytes.
	mapped uint64
	// toServer and toClient are the places of rings.
	toServer, toClient []ring.Place
}

// welcome does the server's part of making a connection, from the answer to
// INIT on.
func (t *talk) welcome() (*session, error) {
	o := &offer{options: &t.port.options}
	o.session.users.Store(1)
	err := t.take(o)
	if err != nil {
		o.session.end()
		return nil, err
	}
	o.session.peerName = t.peer
	return &o.session, nil
}

// take takes what the client brings, until it says that that is all.
func (t *talk) take(o *offer) error {
	if err := t.send(protocol.Ack{}, -1); err != nil {
		return err
	}
	for {
		body, fd, err := t.receive()
		if err != nil {
			return err
		}
		var answer protocol.Body = protocol.Ack{}
		switch m := body.(type) {
		case protocol.AddRegion:
			err = o.addRegion(m, fd)
		case protocol.AddRing:
			err = o.addRing(m, fd)
		case protocol.Connect:
			answer = protocol.Connected{Interface: t.port.options.Name}
			o.session.peerInterface = m.Interface
			err = o.open(t.port)
		default:
			err = unexpected(body, fd, "ADD_REGION, ADD_RING or CONNECT")
		}
		if err == nil {
			err = t.send(answer, -1)
		}
		if _, last := body.(protocol.Connect); last || err != nil {
			return err
		}
	}
}

// bad makes an error about a message.
func bad(message protocol.Type, field string, value uint64, why string) error {
	return fmt.Errorf("%w: %w", ErrMessage, &protocol.Error{Message: message, Field: field, Value: value, Why: why})
}

// addRegion maps a region. It closes the file.
func (o *offer) addRegion(m protocol.AddRegion, file int) error {
	defer closeFile(file)
	s := &o.session
	const kind = protocol.TypeAddRegion
	switch {
	case int(m.Index) != len(s.regions):
		return bad(kind, "index", uint64(m.Index), fmt.Sprintf("want %d", len(s.regions)))
	case len(s.regions) == maxRegions:
		return bad(kind, "index", uint64(m.Index), fmt.Sprintf("at most %d regions", maxRegions))
	case m.Size > o.options.MaxMemory-o.mapped:
		return bad(kind, "size", m.Size, fmt.Sprintf("%#x bytes are mapped, at most %#x", o.mapped, o.options.MaxMemory))
	}
	r, canVanish, err := mapRegion(file, m.Size)
	if err != nil {
		return err
	}
	s.regions = append(s.regions, r)
	s.guarded = s.guarded || canVanish
	o.mapped += m.Size
	return nil
}

// addRing notes where a ring is, and keeps its event.
func (o *offer) addRing(m protocol.AddRing, fd int) error {
	s := &o.session
	places, events := &o.toClient, &s.sendEvents
	if m.Flags&protocol.RingC2S != 0 {
		places, events = &o.toServer, &s.receiveEvents
	}
	const kind = protocol.TypeAddRing
	var err error
	switch {
	case m.Flags&^protocol.RingC2S != 0:
		err = bad(kind, "flags", uint64(m.Flags), "want 0 or 1")
	case int(m.Index) != len(*places):
		err = bad(kind, "index", uint64(m.Index), fmt.Sprintf("want %d", len(*places)))
	case len(*places) == o.options.Queues:
		err = bad(kind, "index", uint64(m.Index), fmt.Sprintf("at most %d rings of each direction", o.options.Queues))
	case m.Log2 > ring.MaxLog2 || 1<<m.Log2 > o.options.Ring:
		err = bad(kind, "log2 ring size", uint64(m.Log2), fmt.Sprintf("at most %d descriptors", o.options.Ring))
	case m.PrivateHeader != 0:
		err = bad(kind, "private header size", uint64(m.PrivateHeader), "want 0")
	}
	var e *event
	if err == nil {
		e, err = takeEvent(fd)
	}
	if err != nil {
		closeFile(fd)
		return err
	}
	*places = append(*places, ring.Place{Region: m.Region, Offset: m.Offset, Log2: m.Log2})
	*events = append(*events, e)
	return nil
}

// open looks at the rings.
func (o *offer) open(p *Port) error {
	if len(o.toServer) == 0 || len(o.toClient) == 0 {
		return bad(protocol.TypeConnect, "number of rings", uint64(len(o.toServer)+len(o.toClient)), "want one in each direction")
	}
	s := &o.session
	memory := make([][]byte, len(s.regions))
	for i, r := range s.regions {
		memory[i] = r.memory
	}
	var err error
	vanished := buserror.Catch(func() {
		for _, at := range o.toServer {
			r, rerr := ring.OpenReceiver(memory, p.rx.scratch, at, !s.guarded)
			s.receivers = append(s.receivers, r)
			err = errors.Join(err, rerr)
		}
		for _, at := range o.toClient {
			r, rerr := ring.OpenSender(memory, p.tx.scratch, at, !s.guarded)
			s.senders = append(s.senders, r)
			err = errors.Join(err, rerr)
		}
	})
	if err = errors.Join(err, vanished); err != nil {
		return fmt.Errorf("%w: %w", ErrMemory, err)
	}
	return nil
}
