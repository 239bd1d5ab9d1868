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

// bad makes an error about a message.
func bad(message protocol.Type, field string, value uint64, why string) error {
	return fmt.Errorf("%w: %w", ErrMessage, &protocol.Error{Message: message, Field: field, Value: value, Why: why})
}

// addRegion maps a region. It closes the file.
func (q *peer) addRegion(m protocol.AddRegion, file int) error {
	defer closeFile(file)
	s, most := q.session, q.keeper.port.options.MaxMemory
	const kind = protocol.TypeAddRegion
	switch {
	case int(m.Index) != len(s.regions):
		return bad(kind, "index", uint64(m.Index), fmt.Sprintf("want %d", len(s.regions)))
	case len(s.regions) == maxRegions:
		return bad(kind, "index", uint64(m.Index), fmt.Sprintf("at most %d regions", maxRegions))
	case m.Size > most-q.mapped:
		return bad(kind, "size", m.Size, fmt.Sprintf("%#x bytes are mapped, at most %#x", q.mapped, most))
	}
	r, canVanish, err := mapRegion(file, m.Size)
	if err != nil {
		return err
	}
	s.regions = append(s.regions, r)
	s.guarded = s.guarded || canVanish
	q.mapped += m.Size
	return nil
}

// addRing notes where a ring is, and keeps its event.
func (q *peer) addRing(m protocol.AddRing, fd int) error {
	s, o := q.session, &q.keeper.port.options
	places, events := &q.toClient, &s.sendEvents
	if m.Flags&protocol.RingC2S != 0 {
		places, events = &q.toServer, &s.receiveEvents
	}
	const kind = protocol.TypeAddRing
	var err error
	switch {
	case m.Flags&^protocol.RingC2S != 0:
		err = bad(kind, "flags", uint64(m.Flags), "want 0 or 1")
	case int(m.Index) != len(*places):
		err = bad(kind, "index", uint64(m.Index), fmt.Sprintf("want %d", len(*places)))
	case len(*places) == o.Queues:
		err = bad(kind, "index", uint64(m.Index), fmt.Sprintf("at most %d rings of each direction", o.Queues))
	case m.Log2 > ring.MaxLog2 || 1<<m.Log2 > o.Ring:
		err = bad(kind, "log2 ring size", uint64(m.Log2), fmt.Sprintf("at most %d descriptors", o.Ring))
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
func (q *peer) open() error {
	if len(q.toServer) == 0 || len(q.toClient) == 0 {
		return bad(protocol.TypeConnect, "number of rings", uint64(len(q.toServer)+len(q.toClient)), "want one in each direction")
	}
	s, p := q.session, q.keeper.port
	memory := make([][]byte, len(s.regions))
	for i, r := range s.regions {
		memory[i] = r.memory
	}
	var err error
	vanished := buserror.Catch(func() {
		for _, at := range q.toServer {
			r, rerr := ring.OpenReceiver(memory, p.rx.scratch, at, !s.guarded)
			s.receivers = append(s.receivers, r)
			err = errors.Join(err, rerr)
		}
		for _, at := range q.toClient {
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
