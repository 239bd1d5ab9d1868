package protocol_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	. "github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

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
		found.Encode(b)
		must.Give(ParseFound(b[:FoundSize]))(t, found)
		s := Summary{Evicted: rapid.Uint64().Draw(t, "evicted")}
		all := uint64(0)
		for i := range s.Frames {
			s.Frames[i] = rapid.Uint32().Draw(t, "frames")
			all += uint64(s.Frames[i])
		}
		s.Encode(b)
		must.Give(ParseSummary(b, all))(t, s)
	})
}

// TestCooperateRefused: the error names the field.
func TestCooperateRefused(t *testing.T) {
	found := make([]byte, FoundSize)
	found[FoundSize-8] = MaxHosts
	summary := make([]byte, SummarySize)
	(&Summary{Frames: [AgeBuckets]uint32{1 << 31, 1 << 31}}).Encode(summary)
	_, host := ParseFound(found)
	_, short := ParseFound(found[:FoundSize-1])
	_, most := ParseSummary(summary, 1<<32-1)
	_, shortSummary := ParseSummary(summary[:SummarySize-1], 1<<40)
	_, _, _, from := (&Request{Offset: MaxHosts + 1}).Moved()
	_, _, _, to := (&Request{Next: MaxHosts + 1}).Moved()
	for want, err := range map[string]error{
		"host of the page that was found": host, "length of the page that was found": short, "number of frames with an age": most,
		"length of the summary": shortSummary, "host that gives up the page": from, "host that gets the page": to,
	} {
		var f *FormatError
		if !errors.As(err, &f) || f.Field != want {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// FuzzCooperate: what is accepted is written again as it was, and counts no more than what is lent.
func FuzzCooperate(f *testing.F) {
	b := make([]byte, SummarySize)
	(&Found{Host: 3, Digest: DigestOf([]byte("page"))}).Encode(b)
	f.Add(b[:FoundSize], uint64(0))
	(&Summary{Evicted: 5, Frames: [AgeBuckets]uint32{1, 0, 7}}).Encode(b)
	f.Add(b, uint64(8))
	f.Add(b, uint64(7))
	f.Fuzz(func(t *testing.T, b []byte, lent uint64) {
		again := make([]byte, SummarySize)
		if x, err := ParseFound(b); err == nil {
			copy(again, b[:ReplySize])
			x.Encode(again)
			if x.Host < -1 || x.Host >= MaxHosts || !bytes.Equal(again[:FoundSize-4], b[:FoundSize-4]) {
				t.Fatalf("%x became %x", b, again)
			}
		}
		if x, err := ParseSummary(b, lent); err == nil {
			copy(again, b[:ReplySize])
			x.Encode(again)
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
