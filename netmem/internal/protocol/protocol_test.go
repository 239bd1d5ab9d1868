package protocol_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// TestRoundTrip: what is written is read.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.Uint64()
		b := make([]byte, 112)
		req := Request{
			Operation: Operation(rapid.Uint8().Draw(t, "operation")), Condition: Condition(rapid.Uint16().Draw(t, "condition")),
			Length: rapid.Uint32().Draw(t, "length"), Incarnation: word.Draw(t, "incarnation"), Page: word.Draw(t, "page"),
			Offset: rapid.Uint32().Draw(t, "offset"), Expected: word.Draw(t, "expected"), Next: word.Draw(t, "next"), Client: word.Draw(t, "client"), Epoch: word.Draw(t, "epoch"),
		}
		req.Encode(b)
		must.Give(ParseRequest(b[:RequestSize]))(t, req)
		rep := Reply{
			Operation: req.Operation, Result: Result(rapid.Uint16Max(uint16(NotHeld)).Draw(t, "result")),
			Length: req.Length, Incarnation: req.Incarnation, Stamp: Stamp{Version: req.Next, Client: req.Client, Flags: rapid.Uint32().Draw(t, "flags")},
		}
		rep.Encode(b)
		d := Description{
			Record: drawRecord(t), Page: MinPage << rapid.IntRange(0, 4).Draw(t, "page"),
			Capacity: word.Draw(t, "capacity"), ReadOnly: rapid.Bool().Draw(t, "readonly"),
		}
		d.Span = uint64(d.Page) * rapid.Uint64Range(1, MaxPages).Draw(t, "span")
		PutBody(b, &d)
		must.Give(ParseDescription(b[:DescribeSize]))(t, d)
		c := Counters{word.Draw(t, "c"), 1, 2, 3, 4, 5, 6, word.Draw(t, "clients")}
		PutBody(b, &c)
		must.Give(ParseCounters(b[:StatSize]))(t, c)
		must.Give(ParseReply(req.Operation, b[:ReplySize]))(t, rep)
	})
}

// drawRecord draws a record that may be one.
func drawRecord(t *rapid.T) Record {
	return Record{Pool: rapid.Uint64Min(1).Draw(t, "pool"), Epoch: rapid.Uint64Min(1).Draw(t, "epoch"), Base: rapid.Uint64().Draw(t, "base"), Members: rapid.Uint64().Draw(t, "members")}
}

// TestRecord: a request carries all of a record, and a stamp is read as it was written.
func TestRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, since, joining := drawRecord(t), rapid.Uint64().Draw(t, "since"), rapid.Bool().Draw(t, "joining")
		q := Request{Operation: Adopt}
		q.SetRecord(r, since, joining)
		if got, s, j := q.Record(); got != r || s != since || j != joining {
			t.Fatalf("%+v, %d, %v became %+v, %d, %v", r, since, joining, got, s, j)
		}
		stamp := Stamp{Version: r.Epoch, Client: r.Base, Flags: uint32(r.Members)}
		b := make([]byte, StampSize)
		if stamp.Encode(b); StampAt(b) != stamp {
			t.Fatalf("%+v became %+v", stamp, StampAt(b))
		}
	})
	should.Fail(t, Record{Epoch: 1}.Check(), ErrBroken, "an epoch of no pool")
}

// TestCooperateRoundTrip: what is written is read.
func TestCooperateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.IntRange(-1, MaxHosts-1)
		stamp := Stamp{Version: rapid.Uint64().Draw(t, "version"), Client: rapid.Uint64().Draw(t, "client")}
		var q Request
		from, to := host.Draw(t, "from"), host.Draw(t, "to")
		q.SetMove(7, stamp, from, to)
		if s, f, o, err := q.Moved(); s != stamp || f != from || o != to || err != nil || q.Operation != Move || q.Page != 7 {
			t.Fatalf("%+v: %v, %d, %d, %v", q, s, f, o, err)
		}
		q = Request{}
		q.SetCopy(Put, 8, 9, stamp, 10)
		if q.Stamp() != stamp || q.Operation != Put || q.Epoch != 8 || q.Page != 9 || q.Next != 10 {
			t.Fatalf("%+v", q)
		}
		b := make([]byte, SummarySize)
		found := Found{Digest: DigestOf(rapid.SliceOf(rapid.Byte()).Draw(t, "page")), Host: int32(host.Draw(t, "host"))}
		PutBody(b, &found)
		must.Give(ParseFound(b[:FoundSize]))(t, found)
		s := Summary{Evicted: rapid.Uint64().Draw(t, "evicted")}
		all := uint64(0)
		for i := range s.Frames {
			s.Frames[i] = rapid.Uint32().Draw(t, "frames")
			all += uint64(s.Frames[i])
		}
		PutBody(b, &s)
		must.Give(ParseSummary(b, all))(t, s)
	})
}

// bytesOf is a place as a table has it.
func bytesOf(p *Place) (b [PlaceSize]byte) {
	for i, w := range p.Words() {
		binary.LittleEndian.PutUint64(b[8*i:], w)
	}
	return b
}

// TestWindowRoundTrip: what is written is read.
func TestWindowRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.Uint64()
		b := make([]byte, WindowSize)
		w := Window{Handle: rapid.Uint32Min(1).Draw(t, "handle"), Frames: word.Draw(t, "frames"), Table: word.Draw(t, "table")}
		PutBody(b, &w)
		must.Give(ParseWindow(b))(t, w)
		p := Place{
			Sequence: rapid.Uint32().Draw(t, "sequence"), Frame: rapid.Uint32().Draw(t, "frame"), Version: word.Draw(t, "version"),
			Client: word.Draw(t, "client"), Epoch: rapid.Uint64Max(MaxPlaceEpoch).Draw(t, "epoch"), Flags: rapid.Uint32Max(15).Draw(t, "flags"),
		}
		place := bytesOf(&p)
		if got, steady := ParsePlace(&place); got != p || steady != (p.Sequence%2 == 0) {
			t.Fatalf("%+v, %v: it was %+v", got, steady, p)
		}
	})
}

// TestRefused: the error names the field.
func TestRefused(t *testing.T) {
	request := func(change func([]byte)) error {
		b := make([]byte, RequestSize)
		(&Request{Operation: Fetch}).Encode(b)
		change(b)
		_, err := ParseRequest(b)
		return err
	}
	reply := func(change func([]byte)) error {
		b := make([]byte, ReplySize)
		(&Reply{Operation: Fetch}).Encode(b)
		change(b)
		_, err := ParseReply(Fetch, b)
		return err
	}
	describe := func(d Description) error {
		b := make([]byte, DescribeSize)
		PutBody(b, &d)
		_, err := ParseDescription(b)
		return err
	}
	_, short := ParseRequest(make([]byte, RequestSize-1))
	_, shortReply := ParseReply(Fetch, make([]byte, ReplySize-1))
	_, shortDescription := ParseDescription(make([]byte, DescribeSize-1))
	_, shortCounters := ParseCounters(make([]byte, StatSize-1))
	found := make([]byte, FoundSize)
	found[FoundSize-8] = MaxHosts
	summary := make([]byte, SummarySize)
	PutBody(summary, &Summary{Frames: [AgeBuckets]uint32{1 << 31, 1 << 31}})
	_, host := ParseFound(found)
	_, shortFound := ParseFound(found[:FoundSize-1])
	_, most := ParseSummary(summary, 1<<32-1)
	_, shortSummary := ParseSummary(summary[:SummarySize-1], 1<<40)
	_, _, _, from := (&Request{Offset: MaxHosts + 1}).Moved()
	_, _, _, to := (&Request{Next: MaxHosts + 1}).Moved()
	_, shortWindow := ParseWindow(make([]byte, WindowSize-1))
	_, noWindow := ParseWindow(make([]byte, WindowSize))
	for want, err := range map[string]error{
		"epoch of the record":           Record{Pool: 1}.Check(),
		"length of the request":         short,
		"version of the request":        request(func(b []byte) { b[0] = 1 }),
		"reserved field of the request": request(func(b []byte) { b[30] = 1 }),
		"length of the reply":           shortReply,
		"version of the reply":          reply(func(b []byte) { b[0] = 0 }),
		"operation of the reply":        reply(func(b []byte) { b[1] = byte(Write) }),
		"result of the reply":           reply(func(b []byte) { b[2] = byte(NotHeld) + 1 }),
		"length of the description":     shortDescription,
		"page of the description":       describe(Description{Page: 5000, Span: 5000}),
		"span of the description":       describe(Description{Page: 4096, Span: 5000}),
		"length of the counters":        shortCounters,

		"host of the page that was found": host, "length of the page that was found": shortFound,
		"number of frames with an age": most, "length of the summary": shortSummary,
		"host that gives up the page": from, "host that gets the page": to,
		"length of the window": shortWindow, "handle of the window": noWindow,
	} {
		var f *FormatError
		if !errors.As(err, &f) || f.Field != want || !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestDocument compares the numbers of PROTOCOL.md with ours.
func TestDocument(t *testing.T) {
	text := must.Get(os.ReadFile("../../../netmem/PROTOCOL.md"))(t)
	ours := map[string]int{
		"describe": int(Describe), "fetch": int(Fetch), "write": int(Write), "adopt": int(Adopt), "stat": int(Stat), "stamps": int(Stamps),
		"find": int(Find), "move": int(Move), "get": int(Get), "put": int(Put), "ages": int(Ages), "found": FoundSize, "summary": SummarySize, "Held": Held, "Left": Left, "NotHeld": int(NotHeld), "direct": int(Direct), "window": WindowSize, "place": PlaceSize,
		"IfExpected": int(IfExpected), "IfOlder": int(IfOlder), "Unwritten": Unwritten,
		"stamp":   StampSize,
		"request": RequestSize, "reply": ReplySize, "description": DescribeSize, "counters": StatSize,
		"OK": int(OK), "BadRequest": int(BadRequest), "BadOperation": int(BadOperation), "OutsideExport": int(OutsideExport),
		"BadLength": int(BadLength), "OtherIncarnation": int(OtherIncarnation), "VersionConflict": int(VersionConflict), "Full": int(Full),
		"ReadOnly": int(ReadOnly), "Busy": int(Busy), "OtherPool": int(OtherPool),
		"OtherEpoch": int(OtherEpoch), "NotMember": int(NotMember), "VersionLimit": int(VersionLimit),
	}
	theirs := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `(\\w+)` \\|").FindAllStringSubmatch(string(text), -1) {
		theirs[row[2]], _ = strconv.Atoi(row[1])
	}
	should.Be(t, cmp.Diff(theirs, ours), "", "the document and the code differ")
}

// FuzzReply: what is accepted has a result that is known, and pages within bounds.
func FuzzReply(f *testing.F) {
	b := make([]byte, DescribeSize)
	(&Reply{Operation: Describe, Result: VersionConflict, Stamp: Stamp{Version: 3}}).Encode(b)
	PutBody(b, &Description{Page: 8192, Span: 1 << 30})
	f.Add(byte(Describe), b)
	f.Add(byte(Fetch), b[:ReplySize])
	f.Fuzz(func(t *testing.T, o byte, b []byte) {
		if r, err := ParseReply(Operation(o), b); err == nil && (r.Result > NotHeld || r.Operation != Operation(o)) {
			t.Fatalf("%+v was accepted", r)
		}
		if d, err := ParseDescription(b); err == nil && (d.Page < MinPage || d.Page > MaxPage || d.Span/uint64(d.Page) == 0 || d.Span/uint64(d.Page) > MaxPages) {
			t.Fatalf("%+v was accepted", d)
		}
		if _, err := ParseCounters(b); (err == nil) != (len(b) >= StatSize) {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
	})
}

// FuzzCooperate: what is accepted is written again as it was, and counts no more than what is lent.
func FuzzCooperate(f *testing.F) {
	b := make([]byte, SummarySize)
	PutBody(b, &Found{Host: 3, Digest: DigestOf([]byte("page"))})
	f.Add(b[:FoundSize], uint64(0))
	PutBody(b, &Summary{Evicted: 5, Frames: [AgeBuckets]uint32{1, 0, 7}})
	f.Add(b, uint64(8))
	f.Add(b, uint64(7))
	f.Fuzz(func(t *testing.T, b []byte, lent uint64) {
		again := make([]byte, SummarySize)
		if x, err := ParseFound(b); err == nil {
			copy(again, b[:ReplySize])
			PutBody(again, &x)
			if x.Host < -1 || x.Host >= MaxHosts || !bytes.Equal(again[:FoundSize-4], b[:FoundSize-4]) {
				t.Fatalf("%x became %x", b, again)
			}
		}
		if x, err := ParseSummary(b, lent); err == nil {
			copy(again, b[:ReplySize])
			PutBody(again, &x)
			all := uint64(0)
			for _, n := range x.Frames {
				all += uint64(n)
			}
			if all > lent || !bytes.Equal(again, b[:SummarySize]) {
				t.Fatalf("%x became %x", b, again)
			}
		}
		if q, err := ParseRequest(b); err == nil {
			s, from, to, err := q.Moved()
			if err == nil && (from < -1 || from >= MaxHosts || to < -1 || to >= MaxHosts) {
				t.Fatalf("%+v moves from %d to %d", q, from, to)
			}
			if err == nil && q.Operation == Move {
				r := q
				if r.SetMove(q.Page, s, from, to); r != q {
					t.Fatalf("%+v became %+v", q, r)
				}
			}
		}
	})
}
