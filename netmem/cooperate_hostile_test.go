package netmem_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// idleHost is what a host with much idle memory says, which keeps nothing.
func idleHost(q protocol.Request) ([]byte, int) {
	b := make([]byte, protocol.SummarySize)
	r := protocol.Reply{Operation: q.Operation, Incarnation: fakeIncarnation}
	switch q.Operation {
	case protocol.Describe:
		protocol.PutBody(b, &protocol.Description{Span: coopPage, Capacity: 1000 * coopPage, Page: coopPage})
	case protocol.Ages:
		s := protocol.Summary{}
		s.Frames[protocol.AgeBuckets-1] = 1000
		protocol.PutBody(b, &s)
	case protocol.Get:
		r.Length, r.Version, r.Client = q.Length, q.Expected, q.Client
	}
	r.Encode(b)
	return b, int(r.Length)
}

// TestHostileHost: whatever a host says, no byte of a page is wrong, and the error names the host.
func TestHostileHost(t *testing.T) {
	lying := func(o protocol.Operation, change func(b []byte) ([]byte, int)) answer {
		return func(q protocol.Request) ([]byte, int) {
			b, n := idleHost(q)
			if q.Operation == o {
				return change(b)
			}
			return b, n
		}
	}
	result := func(r protocol.Result) func(b []byte) ([]byte, int) {
		return func(b []byte) ([]byte, int) { b[2] = byte(r); clear(b[4:8]); return b, 0 }
	}
	for name, c := range map[string]struct {
		answer
		want  error
		wrong bool
	}{
		"another page":    {idleHost, netmem.ErrWrongPage, true},
		"half a page":     {lying(protocol.Get, func(b []byte) ([]byte, int) { b[5] /= 2; return b, coopPage / 2 }), netmem.ErrWrongPage, true},
		"no page":         {lying(protocol.Get, func(b []byte) ([]byte, int) { b[5] = 0; return b, 0 }), netmem.ErrWrongPage, true},
		"length lies":     {lying(protocol.Get, func(b []byte) ([]byte, int) { return b, coopPage / 2 }), netmem.ErrProtocol, false},
		"keeps nothing":   {lying(protocol.Get, result(protocol.NotHeld)), netmem.ErrNotKept, false},
		"never answers":   {lying(protocol.Get, func([]byte) ([]byte, int) { return nil, 0 }), nil, false},
		"nothing":         {lying(protocol.Get, func([]byte) ([]byte, int) { return []byte{}, 0 }), netmem.ErrProtocol, false},
		"other ages":      {lying(protocol.Ages, func(b []byte) ([]byte, int) { b[protocol.SummarySize-2] = 1; return b, 0 }), netmem.ErrProtocol, false},
		"short ages":      {lying(protocol.Ages, func(b []byte) ([]byte, int) { return b[:protocol.ReplySize], 0 }), netmem.ErrProtocol, false},
		"an old server":   {lying(protocol.Ages, result(protocol.BadOperation)), netmem.ErrProtocol, false},
		"other pages":     {lying(protocol.Describe, func(b []byte) ([]byte, int) { b[89] *= 2; return b, 0 }), netmem.ErrProtocol, false},
		"refuses all":     {lying(protocol.Put, result(protocol.Full)), nil, false},
		"no such refusal": {lying(protocol.Put, result(protocol.ReadOnly)), netmem.ErrReadOnly, false},
	} {
		t.Run(name, func(t *testing.T) {
			const pages = 64
			r := newRig(t, emulator.PairOptions{})
			server := r.serve(netmem.ServerOptions{Page: coopPage, Size: pages * coopPage})
			first := r.open(netmem.Options{}, server)
			for i := range pages {
				r.write(first, content(i), int64(i)*coopPage)
			}
			r.close(first)
			liar := r.fake("liar", c.answer).String()
			x := r.open(netmem.Options{Cache: 16 * coopPage, ReadAhead: -1, Cooperation: &netmem.Cooperation{Hosts: []string{liar}}}, server)
			blamed := func() bool {
				h := x.Stats().Hosts[0]
				if c.want == nil {
					return h.Sent+h.Refused > 0 || h.Err != nil
				}
				return errors.Is(h.Err, c.want) || c.want == netmem.ErrProtocol && errors.Is(h.Err, netmem.ErrOption)
			}
			for end := time.Now().Add(patience); !blamed(); {
				for i := range pages {
					must.Same(t, r.read(x, coopPage, int64(i)*coopPage), content(i), "page %d is wrong", i)
				}
				if time.Now().After(end) {
					t.Fatalf("it is not noticed: %+v", x.Stats())
				}
			}
			s := x.Stats()
			h := s.Hosts[0]
			if h.Err != nil && !strings.Contains(h.Err.Error(), liar) && c.want != nil {
				t.Errorf("the error does not name the host: %v", h.Err)
			}
			if c.wrong && (h.Wrong != 1 || s.Wrong != 1 || h.Connected) {
				t.Errorf("a host that lies: %+v", h)
			}
			should.Be(t, s.FromHosts, 0, "pages that came from it")
		})
	}
}

// TestHostileGuest: whatever a client asks of a host has an answer that says what is wrong, and takes
// nothing from others.
func TestHostileGuest(t *testing.T) {
	c := newCrew(t, 2, 16)
	x := c.join(1, 16)
	k := c.callerAt(c.hosts[1])
	copyOf := func(o protocol.Operation, pool, page uint64, change func(q *protocol.Request)) protocol.Request {
		q := protocol.Request{Length: coopPage, Incarnation: k.incarnation}
		q.SetCopy(o, pool, page, protocol.Stamp{Version: 3, Client: 4}, 5)
		change(&q)
		return q
	}
	same := func(*protocol.Request) {}
	for name, c := range map[string]struct {
		q       protocol.Request
		payload int
		want    protocol.Result
	}{
		"fetch":             {protocol.Request{Operation: protocol.Fetch, Length: coopPage, Incarnation: k.incarnation}, 0, protocol.BadOperation},
		"write":             {protocol.Request{Operation: protocol.Write, Length: coopPage, Incarnation: k.incarnation}, coopPage, protocol.BadOperation},
		"adopt":             {protocol.Request{Operation: protocol.Adopt, Incarnation: k.incarnation}, 0, protocol.BadOperation},
		"find":              {protocol.Request{Operation: protocol.Find, Incarnation: k.incarnation}, 0, protocol.BadOperation},
		"get of none":       {copyOf(protocol.Get, 9, 1, same), 0, protocol.NotHeld},
		"get of no pool":    {copyOf(protocol.Get, 0, 1, same), 0, protocol.BadRequest},
		"get half":          {copyOf(protocol.Get, 9, 1, func(q *protocol.Request) { q.Length /= 2 }), 0, protocol.BadLength},
		"put of no pool":    {copyOf(protocol.Put, 0, 1, same), coopPage, protocol.BadRequest},
		"put half":          {copyOf(protocol.Put, 9, 1, same), coopPage / 2, protocol.BadLength},
		"put without page":  {copyOf(protocol.Put, 9, 1, same), 0, protocol.BadLength},
		"put that lies":     {copyOf(protocol.Put, 9, 1, func(q *protocol.Request) { q.Length *= 2 }), coopPage, protocol.BadLength},
		"put of no age":     {copyOf(protocol.Put, 9, 1, func(q *protocol.Request) { q.Next = 1 << 40 }), coopPage, protocol.BadRequest},
		"other incarnation": {copyOf(protocol.Get, 9, 1, func(q *protocol.Request) { q.Incarnation++ }), 0, protocol.OtherIncarnation},
	} {
		if r := k.ask(c.q, c.payload); r.Result != c.want || r.Length != 0 {
			t.Errorf("%s: %v", name, r.Result)
		}
	}
	should.Be(t, x.Stats().Kept, 0, "pages that are kept")
	// However many it sends, what the client itself reads has room.
	for i := range uint64(100) {
		k.ask(copyOf(protocol.Put, 9, i, func(q *protocol.Request) { q.Next = 0 }), coopPage)
	}
	if s := x.Stats(); s.Kept == 0 {
		t.Error("no page is kept")
	}
	for i := range 16 {
		c.expect(x, i)
	}
}

// TestHostileFinder: a page server refuses nonsense about the directory.
func TestHostileFinder(t *testing.T) {
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: coopPage, Size: 16 * coopPage})
	r.close(r.open(netmem.Options{}, s)) // it has a pool
	k := r.caller(s)
	find := protocol.Request{Operation: protocol.Find, Length: coopPage, Epoch: 1, Incarnation: k.incarnation}
	for name, c := range map[string]struct {
		change func(q *protocol.Request)
		want   protocol.Result
	}{
		"fine":           {func(*protocol.Request) {}, protocol.OK},
		"half a page":    {func(q *protocol.Request) { q.Length /= 2 }, protocol.BadLength},
		"behind the end": {func(q *protocol.Request) { q.Page = 16 }, protocol.OutsideExport},
		"far behind":     {func(q *protocol.Request) { q.Page = 1<<64 - 1 }, protocol.OutsideExport},
		"no such host":   {func(q *protocol.Request) { q.Offset = 17 }, protocol.BadRequest},
		"no such hosts":  {func(q *protocol.Request) { q.Next = 1 << 16 }, protocol.BadRequest},
		"another epoch":  {func(q *protocol.Request) { q.Epoch = 7 }, protocol.OtherEpoch},
		"move to none such": {func(q *protocol.Request) {
			q.SetMove(0, protocol.Stamp{}, 0, 0)
			q.Next = 17
		}, protocol.BadRequest},
		"move from none such": {func(q *protocol.Request) {
			q.SetMove(0, protocol.Stamp{}, 0, 0)
			q.Offset = 1 << 31
		}, protocol.BadRequest},
		"move another version": {func(q *protocol.Request) { q.SetMove(0, protocol.Stamp{Version: 1}, 0, 1) }, protocol.NotHeld},
		"move far behind":      {func(q *protocol.Request) { q.SetMove(1<<64-1, protocol.Stamp{}, 0, 1) }, protocol.NotHeld},
	} {
		q := find
		c.change(&q)
		should.Be(t, k.ask(q, 0).Result, c.want, "%s", name)
	}
}
