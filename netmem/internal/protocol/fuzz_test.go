package protocol_test

import (
	"testing"

	. "github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// FuzzReply: what is accepted has a result that is known, and pages within bounds.
func FuzzReply(f *testing.F) {
	b := make([]byte, DescribeSize)
	(&Reply{Operation: Describe, Result: VersionConflict, Stamp: Stamp{Version: 3}}).Encode(b)
	(&Description{Page: 8192, Span: 1 << 30}).Encode(b)
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
