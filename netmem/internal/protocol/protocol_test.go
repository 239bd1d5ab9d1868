package protocol_test

import (
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
		d.Encode(b)
		must.Give(ParseDescription(b[:DescribeSize]))(t, d)
		c := Counters{word.Draw(t, "c"), 1, 2, 3, 4, 5, 6, word.Draw(t, "clients")}
		c.Encode(b)
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
	for what, r := range map[string]Record{"no epoch": {Pool: 1}, "epoch of none": {Epoch: 1}} {
		var f *FormatError
		if err := r.Check(); !errors.As(err, &f) {
			t.Errorf("%s: %v", what, err)
		}
	}
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
		d.Encode(b)
		_, err := ParseDescription(b)
		return err
	}
	_, short := ParseRequest(make([]byte, RequestSize-1))
	_, shortReply := ParseReply(Fetch, make([]byte, ReplySize-1))
	_, shortDescription := ParseDescription(make([]byte, DescribeSize-1))
	_, shortCounters := ParseCounters(make([]byte, StatSize-1))
	for want, err := range map[string]error{
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
	} {
		var f *FormatError
		if !errors.As(err, &f) || f.Field != want {
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
