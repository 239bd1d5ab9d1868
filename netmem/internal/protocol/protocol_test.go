package protocol_test

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

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
			Offset: rapid.Uint32().Draw(t, "offset"), Expected: word.Draw(t, "expected"), Next: word.Draw(t, "next"), Client: word.Draw(t, "client"), Epoch: word.Draw(t, "epoch"), Ranks: word.Draw(t, "record ranks"),
		}
		req.Encode(b)
		if got, err := ParseRequest(b[:RequestSize]); err != nil || got != req {
			t.Fatalf("%+v, %v: it was %+v", got, err, req)
		}
		rep := Reply{
			Operation: req.Operation, Result: Result(rapid.Uint16Max(uint16(NotHeld)).Draw(t, "result")), Flags: rapid.Uint32().Draw(t, "flags"),
			Length: req.Length, Incarnation: req.Incarnation, Version: req.Next, Client: req.Client,
		}
		rep.Encode(b)
		d := Description{
			Record: drawRecord(t), Page: MinPage << rapid.IntRange(0, 4).Draw(t, "page"),
			Capacity: word.Draw(t, "capacity"), ReadOnly: rapid.Bool().Draw(t, "readonly"),
		}
		d.Span = uint64(d.Page) * rapid.Uint64Range(1, MaxPages).Draw(t, "span")
		d.Encode(b)
		if got, err := ParseDescription(b[:DescribeSize]); err != nil || got != d {
			t.Fatalf("%+v, %v: it was %+v", got, err, d)
		}
		c := Counters{word.Draw(t, "c"), 1, 2, 3, 4, 5, 6, word.Draw(t, "clients")}
		c.Encode(b)
		if got, err := ParseCounters(b[:StatSize]); err != nil || got != c {
			t.Fatalf("%+v, %v: it was %+v", got, err, c)
		}
		if got, err := ParseReply(req.Operation, b[:ReplySize]); err != nil || got != rep {
			t.Fatalf("%+v, %v: it was %+v", got, err, rep)
		}
	})
}

// TestRefused: the error names the field.
// drawRecord draws a record that may be one.
func drawRecord(t *rapid.T) Record {
	r := Record{Pool: rapid.Uint64Min(1).Draw(t, "pool"), Epoch: rapid.Uint64Min(1).Draw(t, "epoch"), Base: rapid.Uint64().Draw(t, "base"), Members: rapid.Uint64().Draw(t, "members"), Ranks: rapid.Uint64().Draw(t, "ranks")}
	r.States = rapid.Uint64Range(1, MaxServers).Draw(t, "copies") << 32
	for n := range MaxServers {
		r.States |= uint64(rapid.Uint8Max(2).Draw(t, "state")) << (2 * n)
	}
	return r
}

func TestRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t)
		got, err := ParseRecord(r.Append(nil))
		if err != nil || got != r {
			t.Fatalf("%+v, %v: it was %+v", got, err, r)
		}
		n, s := rapid.IntRange(0, MaxServers-1).Draw(t, "server"), State(rapid.Uint8Max(2).Draw(t, "new state"))
		next := r.With(n, s)
		if next.Check() != nil && r.Epoch+1 != 0 || next.Epoch != r.Epoch+1 {
			t.Fatalf("%+v became %+v", r, next)
		}
		for i := range MaxServers {
			if want := r.State(i); i != n && next.State(i) != want || i == n && next.State(i) != s {
				t.Fatalf("server %d is %v", i, next.State(i))
			}
		}
		for i := range MaxServers {
			if s == Joining && i != n && next.Rank(i) >= next.Rank(n) {
				t.Fatalf("server %d joins with rank %d, and %d has %d", n, next.Rank(n), i, next.Rank(i))
			}
			for j := range MaxServers {
				if i != n && j != n && (r.Rank(i) < r.Rank(j)) != (next.Rank(i) < next.Rank(j)) {
					t.Fatalf("the order of servers %d and %d has changed", i, j)
				}
			}
		}
		stamp := Stamp{Version: r.Epoch, Client: r.Base, Flags: uint32(r.Members)}
		b := make([]byte, StampSize)
		if stamp.Encode(b); StampAt(b) != stamp {
			t.Fatalf("%+v became %+v", stamp, StampAt(b))
		}
	})
	for what, b := range map[string][]byte{
		"short":         make([]byte, RecordSize-1),
		"long":          make([]byte, RecordSize+1),
		"no such state": Record{Pool: 1, Epoch: 1, States: 1<<32 | 3<<20}.Append(nil),
		"no epoch":      Record{Pool: 1, States: 1 << 32}.Append(nil),
		"epoch of none": Record{Epoch: 1}.Append(nil),
		"no copies":     Record{Pool: 1, Epoch: 1}.Append(nil),
		"too many":      Record{Pool: 1, Epoch: 1, States: 17 << 32}.Append(nil),
	} {
		var f *FormatError
		if _, err := ParseRecord(b); !errors.As(err, &f) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

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

// TestMove: a move changes who has pages at its end, or nothing.
func TestMove(t *testing.T) {
	states := func(r Record) (s string) {
		for i := range 5 {
			s += r.State(i).String()[:1]
		}
		return s
	}
	first := FirstNamed(1, 1, 7<<32, 2, 3)
	out := first.With(1, Out)
	move := out.Move(3, 9)
	for want, r := range map[string]Record{"mmmvv": first, "momvv": out, "momjv": move, "mvmmv": move.Moved(true)} {
		if states(r) != want || r.Check() != nil || !r.SamePool(first) || r.Copies() != 2 || r.Ranks != 0 || r.Moving() != (want == "momjv") {
			t.Errorf("%s: %+v, %v", want, r, r.Check())
		}
	}
	if r := move.Moved(false); states(r) != states(out) || r.Generation() != out.Generation()+2 || r.Epoch != move.Epoch+1 {
		t.Errorf("a move that was not done: %+v", r)
	}
	if move.Newest() != 9 || out.Move(-1, 0).Members != out.Members {
		t.Error("who has come last is not told")
	}
	if other := FirstNamed(1, 1, 8<<32, 2, 3); other.SamePool(first) {
		t.Error("two names are the same pool")
	}
}

// TestDocument compares the numbers of PROTOCOL.md with ours.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../netmem/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]int{
		"describe": int(Describe), "fetch": int(Fetch), "write": int(Write), "adopt": int(Adopt), "stat": int(Stat), "stamps": int(Stamps), "witness": int(Witness),
		"find": int(Find), "move": int(Move), "get": int(Get), "put": int(Put), "ages": int(Ages), "found": FoundSize, "summary": SummarySize, "Held": Held, "Left": Left, "NotHeld": int(NotHeld), "direct": int(Direct), "window": WindowSize, "place": PlaceSize,
		"IfExpected": int(IfExpected), "IfOlder": int(IfOlder), "Always": int(Always), "Exactly": int(Exactly), "Unwritten": Unwritten, "Fresh": Fresh,
		"member": int(Member), "joining": int(Joining), "out": int(Out), "vacant": int(Vacant), "record": RecordSize, "stamp": StampSize,
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
	if d := cmp.Diff(theirs, ours); d != "" {
		t.Errorf("the document and the code differ:\n%s", d)
	}
}
