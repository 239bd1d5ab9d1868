package wire

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// maxAsks bounds the questions that are open; the first half of the places is for
// stations, about which any sender can raise one, the other for connections,
// whose key it takes.
const maxAsks = 64

// askPauses are the times between the queries of one question, and from the last
// of them to its end: a second in all, long enough for a peer that was not running,
// and the least time between two questions about a station.
var askPauses = [...]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond}

// question is an ask back: a frame of a station has come from an address other than
// the one that is known. Random numbers that only who receives at an address sees
// tell who is where (as in RFC 9000, 8.2 and 9).
type question struct {
	mac datasheet.MAC
	// endpoint is ours, of the connection whose key the frame had; 0 if it had none,
	// and the question is about the station.
	endpoint uint32
	to       far
	// old is where the station was. A question about a connection does not ask there:
	// the key says whose it is.
	old, candidate           netip.AddrPort
	oldNonce, candidateNonce uint64
	here, there              bool // answers from candidate and old
	settled                  bool // the rest of its time only holds the next one up
	sent                     int
	due                      time.Time
}

// ask begins a question, unless there is one about the same already.
func (u *UDP) ask(q question) {
	n := 0
	for i := range u.questions {
		o := &u.questions[i]
		if o.mac == q.mac && o.endpoint == q.endpoint {
			return
		}
		if (o.endpoint == 0) == (q.endpoint == 0) {
			n++
		}
	}
	if n >= maxAsks/2 {
		return
	}
	var random [16]byte
	// crypto/rand.Read does not fail.
	_, _ = rand.Read(random[:])
	q.oldNonce, q.candidateNonce = binary.LittleEndian.Uint64(random[:]), binary.LittleEndian.Uint64(random[8:])
	q.due = time.Now()
	u.questions = append(u.questions, q)
	u.tend()
}

// pursue sends the queries that are due and ends questions whose time is up. It
// returns when to come back, zero if there are no questions.
func (u *UDP) pursue(now time.Time) (next time.Time) {
	kept := u.questions[:0]
	for _, q := range u.questions {
		if !now.Before(q.due) {
			if q.sent == len(askPauses) {
				u.conclude(&q)
				continue
			}
			if !q.settled {
				u.query(&q)
			}
			q.due = now.Add(askPauses[q.sent])
			q.sent++
		}
		if next.IsZero() || q.due.Before(next) {
			next = q.due
		}
		kept = append(kept, q)
	}
	u.questions = kept
	return next
}

// query asks both, the new address only every other time: a sender that claims
// a third host's address shall not have many datagrams go there.
func (u *UDP) query(q *question) {
	if !q.here && q.sent%2 == 0 {
		u.sendQuery(datasheet.FrameStationQuery, q.mac, q.candidateNonce, q.candidate)
	}
	if q.endpoint == 0 {
		u.sendQuery(datasheet.FrameStationQuery, q.mac, q.oldNonce, q.old)
	}
}

// sendQuery sends a query or an answer.
func (u *UDP) sendQuery(t datasheet.FrameType, mac datasheet.MAC, nonce uint64, to netip.AddrPort) {
	h := datasheet.HeaderAt(u.queryFrame)
	*h = datasheet.Header{Destination: mac, Source: u.station(), EtherType: datasheet.EtherType,
		Version: datasheet.WireVersion, Type: t, Flags: datasheet.FrameChecksum,
		Extent: uint32(nonce), Offset: uint32(nonce >> 32)}
	h.Checksum = datasheet.FrameChecksumOf(u.queryFrame)
	u.send(u.reply, u.queryFrame, u.towards(to))
}

// queried answers a query for our own station.
func (u *UDP) queried(h *datasheet.Header, from netip.AddrPort) {
	if h.Destination == u.station() && h.Destination != (datasheet.MAC{}) && u.LinkUp() {
		u.sendQuery(datasheet.FrameStationAnswer, h.Source, uint64(h.Offset)<<32|uint64(h.Extent), from)
	}
}

// answered takes an answer to one of our queries.
func (u *UDP) answered(h *datasheet.Header, from netip.AddrPort) {
	nonce := uint64(h.Offset)<<32 | uint64(h.Extent)
	for i := range u.questions {
		q := &u.questions[i]
		if q.settled || q.mac != h.Source {
			continue
		}
		switch {
		case from == q.candidate && nonce == q.candidateNonce:
			q.here = true
			if q.endpoint != 0 {
				q.settled = true
				u.moveConnection(q)
			}
		case q.endpoint == 0 && from == q.old && nonce == q.oldNonce:
			q.there, q.settled = true, true
		}
	}
}

// moveConnection has the frames of a connection go to where its peer, whose key and
// answer we have, is now.
func (u *UDP) moveConnection(q *question) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if own := u.connections.byEndpoint[q.endpoint]; own != nil && own.to == q.to {
		own.address = q.candidate
		u.version.Add(1)
		u.moves.Add(1)
	}
}

// conclude ends a question. A station has moved if it is not any more where it was,
// and is where the frame came from.
func (u *UDP) conclude(q *question) {
	if q.endpoint != 0 || !q.here || q.there {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if st := u.stations.known[q.mac]; st != nil && st.address == q.old {
		st.address, st.proven = q.candidate, false
		u.version.Add(1)
		u.moves.Add(1)
	}
}
