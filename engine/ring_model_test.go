package engine_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// ringModel says what must become of the messages from one ring to another, whatever the wire
// does, when the table changes only while nothing is under way.
type ringModel struct {
	from, to  *ring
	reliable  bool
	sends     []ringSend // posted
	receives  []ringReceive
	ended     int // of both, as far as they have met
	dropped   uint64
	discarded uint64
	places    map[uint32]ringPlace // by entry
	zones     map[uint32][]byte    // memory of the entries
	addresses map[uint32]uint64
}

type ringSend struct {
	message, payload []byte // without a payload: nil
	tag              uint32 // zero: none
	slot             *datasheet.RingSlot
}

type ringReceive struct {
	size  int // of the frame; negative: none
	frame []byte
	slot  *datasheet.RingSlot
}

type ringPlace struct {
	tag    uint32
	length int
}

// Tags of which two share an entry, and none.
var modelTags = []uint32{0, 1, 2, 257, 258, 0xffffff01}

const zoneSize = 3000

func newRingModel(t *rapid.T, tb testing.TB) *ringModel {
	level := rapid.SampledFrom([]datasheet.Reliability{datasheet.Unreliable, datasheet.ReliableDelivery, datasheet.ReliableReception}).Draw(t, "level")
	options := []option{scheduleMemory}
	wire := rapid.SampledFrom([]string{"plain", "exact", "slots", "lent slots", "pieces", "lending", "lossy"}).Draw(t, "wire")
	switch {
	case wire == "exact":
		options = append(options, exactly(nil))
	case wire == "slots":
		options = append(options, exactly(nil), withSlots)
	case wire == "lent slots":
		options = append(options, lending(2560, new([2]*lender)), exactly(nil), withSlots, lendsToo)
	case wire == "pieces":
		options = append(options, inParts(nil), bursts(300))
	case wire == "lending":
		options = append(options, lending(2560, new([2]*lender)))
	case wire == "lossy" && level != datasheet.Unreliable:
		options = append(options, lossy(rapid.Uint64().Draw(t, "seed"), 0.2, 0.05, 0.1, 0.02))
	}
	_, a, b := ringPair(tb, func(b *datasheet.CreateEndpointBody) { b.Reliability, b.MaxTransfer = level, ringMessage+4000 }, options...)
	a.byPath = strings.HasSuffix(wire, "slots")
	b.byPath = a.byPath
	m := &ringModel{from: a, to: b, reliable: level != datasheet.Unreliable, places: map[uint32]ringPlace{}, zones: map[uint32][]byte{}, addresses: map[uint32]uint64{}}
	for entry := uint32(1); entry <= 2; entry++ {
		mem, d := b.frame(zoneSize)
		m.zones[entry], m.addresses[entry] = mem, d.Address
	}
	return m
}

func (m *ringModel) send(t *rapid.T) {
	if len(m.sends)-m.ended == ringSlots {
		return
	}
	s := ringSend{message: pattern(ringMessage, uint64(len(m.sends))), tag: rapid.SampledFrom(modelTags).Draw(t, "tag")}
	if size := rapid.IntRange(-1, 4000).Draw(t, "payload"); size >= 0 {
		s.payload = pattern(size, uint64(len(m.sends))<<20|1)
	}
	s.slot = m.from.transmit(s.message, s.payload, s.tag)
	m.sends = append(m.sends, s)
	if !m.reliable && len(m.receives) == m.ended {
		m.from.n.w.run("a send", func() bool { return s.slot.LoadStatus().Done() })
		m.from.n.w.settle()
		m.sends = m.sends[:len(m.sends)-1]
		m.dropped++
	}
	m.meet(t)
}

func (m *ringModel) receive(t *rapid.T) {
	if len(m.receives)-m.ended == ringSlots {
		return
	}
	r := ringReceive{size: rapid.IntRange(-1, 4000).Draw(t, "frame")}
	r.slot, r.frame = m.to.receive(r.size)
	clear(r.frame)
	m.receives = append(m.receives, r)
	m.meet(t)
}

// place writes an entry, by a store or by a command.
func (m *ringModel) place(t *rapid.T) {
	tag := rapid.SampledFrom(modelTags[1:]).Draw(t, "tag")
	length := rapid.IntRange(0, zoneSize).Draw(t, "length") // zero: the entry is emptied
	entry := tag % datasheet.PayloadEntries
	at, handle := m.addresses[entry], m.to.memory
	if m.places[entry] = (ringPlace{tag, length}); length == 0 {
		delete(m.places, entry)
		at, handle, tag = 0, 0, 0
	}
	if rapid.Bool().Draw(t, "by a command") {
		do(m.to.n, datasheet.OpSetPayload, datasheet.SetPayloadBody{Endpoint: m.to.id, Address: at, Entry: entry, Handle: handle, Length: uint32(length), Tag: tag})
	} else {
		m.to.table[entry].Store(&datasheet.RingPlace{Address: at, Handle: handle, Length: uint32(length), Tag: tag})
	}
}

// meet ends the messages that have both a send and a receive, and checks them.
func (m *ringModel) meet(t *rapid.T) {
	for ; m.ended < len(m.sends) && m.ended < len(m.receives); m.ended++ {
		s, r := m.sends[m.ended], m.receives[m.ended]
		for _, zone := range m.zones {
			clear(zone)
		}
		m.from.n.w.run("a message", func() bool { return s.slot.LoadStatus().Done() && r.slot.LoadStatus().Done() })
		entry := s.tag % datasheet.PayloadEntries
		p, named := m.places[entry]
		sent, length, place := uint32(len(s.payload)), uint32(0), uint32(0)
		into := map[bool][]byte{false: r.frame, true: m.zones[entry]}
		switch named = named && s.tag != 0 && p.tag == s.tag; {
		case sent == 0:
		case named && len(s.payload) <= p.length:
			length, place = sent, entry+1
		case !named && len(s.payload) <= r.size:
			length = sent
		default:
			m.discarded++
		}
		must.Be(t, s.slot.LoadStatus(), datasheet.StatusDone)
		arrived(m.from.n.w.t, r.slot, s.message, length, sent, place, s.tag)
		if length > 0 {
			mustEqual(m.from.n.w.t, into[named][:length], s.payload)
			clear(into[named][:length])
		}
		zeroes(m.from.n.w.t, "the frame", r.frame)
		for _, zone := range m.zones {
			zeroes(m.from.n.w.t, "an entry's memory", zone)
		}
	}
	if m.ended == len(m.sends) && m.ended == len(m.receives) {
		m.from.n.brk, m.to.n.brk = 0, 2*((zoneSize+63)&^63)
	}
}

func (m *ringModel) check(t *rapid.T) {
	e := m.to.n.e
	must.Be(t, e.Counter(datasheet.CounterPayloadsDiscarded), m.discarded, "payloads discarded")
	must.Be(t, e.Counter(datasheet.CounterReceiveQueueEmpty), m.dropped, "messages dropped")
	must.Be(t, len(m.to.n.events)+len(m.from.n.events), 0, "%+v, %+v", m.from.n.events, m.to.n.events)
}

// TestRingModel: whatever hosts post and name, each message that finds a receive arrives, and
// its payload where it belongs and nowhere else.
func TestRingModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newRingModel(rt, t)
		rt.Repeat(map[string]func(*rapid.T){"send": m.send, "receive": m.receive, "place": m.place, "": m.check})
	})
}
