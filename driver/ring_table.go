package driver

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// placeTable is the payload table of a ring in device memory (SPEC.md 15), which the host
// writes itself.
type placeTable struct {
	n  *NIC
	at uint64 // offset in BAR4

	mu      sync.Mutex
	places  []datasheet.RingPlace // nil if device memory is not mapped
	handles [datasheet.PayloadEntries]uint32
	scratch [datasheet.RingPlaceSize]byte
	closed  bool
}

// Offsets in an entry.
const (
	placeHandle = 8
	placeLength = 12
	placeTag    = 16
)

func (t *placeTable) init(n *NIC, at uint64) {
	t.n, t.at = n, at
	t.places = datasheet.RingPlacesAt(n.bar4.mapped.Window(at, datasheet.PayloadEntries*datasheet.RingPlaceSize))
}

// SetPlace has the payload of the next message with tag land at p, whatever entry of the
// receive ring takes the message; the entry of the table is tag modulo PayloadEntries. It
// is a few stores. A payload that is longer than p is discarded. Use a tag once, so that a
// message that comes late finds its tag withdrawn.
//
// The zero p withdraws the tag. A message that comes later finds nothing; the payload of one
// that has begun to come may still land where it was to: see EndPlace.
func (r *Ring) SetPlace(tag uint32, p datasheet.DataSegment) error {
	const op = "set place"
	t, i := &r.table, tag%datasheet.PayloadEntries
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return t.n.error(op, descriptors.ErrClosed)
	}
	t.handles[i] = p.Handle
	if t.places == nil {
		return t.n.error(op, t.write(uint64(i), tag, p))
	}
	e := &t.places[i]
	// What RingPlace.Store does, for memory that may be write-combining. The last word is on its way with
	// the next doorbell.
	mmio.Write32(&e.Handle, 0)
	mmio.FlushWriteCombining()
	if p.Handle == 0 {
		return nil
	}
	mmio.Write32(&e.Tag, tag)
	mmio.FlushWriteCombining()
	mmio.Write32(&e.Length, p.Length)
	mmio.Write64(&e.Address, p.Address)
	mmio.FlushWriteCombining()
	mmio.Write32(&e.Handle, p.Handle)
	return nil
}

// EndPlace withdraws a tag as SetPlace does, and has the device let go of the memory:
// when it returns nothing more lands there, and the rest of a payload that is on its way is
// discarded. It is a command, and no part of the data path.
func (r *Ring) EndPlace(ctx context.Context, tag uint32) error {
	return r.do(ctx, "end place", func() error {
		if err := r.SetPlace(tag, datasheet.DataSegment{}); err != nil {
			return err
		}
		_, err := r.execute(ctx, newCommand(datasheet.OpSetPayload, datasheet.SetPayloadBody{
			Endpoint: r.number, Entry: tag % datasheet.PayloadEntries}))
		return err
	})
}

// write is the end of SetPlace where device memory is not mapped. mu is held.
func (t *placeTable) write(i uint64, tag uint32, p datasheet.DataSegment) error {
	at, b := t.at+i*datasheet.RingPlaceSize, t.scratch[:]
	clear(b)
	if err := t.n.bar4.write(at+placeHandle, b[placeHandle:placeLength]); err != nil || p.Handle == 0 {
		return err
	}
	binary.LittleEndian.PutUint32(b[placeTag:], tag)
	if err := t.n.bar4.write(at+placeTag, b[placeTag:]); err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(b, p.Address)
	binary.LittleEndian.PutUint32(b[placeLength:], p.Length)
	if err := t.n.bar4.write(at, b[:placeTag]); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(b[placeHandle:], p.Handle)
	return t.n.bar4.write(at+placeHandle, b[placeHandle:placeLength])
}

func (t *placeTable) holds(handle uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.closed && slices.Contains(t.handles[:], handle)
}

func (t *placeTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.places = true, nil
}
