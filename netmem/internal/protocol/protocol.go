// Package protocol has what clients and servers of network memory say to each other:
// one request and one reply for each operation, in the message of a ring, with a page,
// or a part of one, as payload. netmem/PROTOCOL.md describes it; a test compares the two.
package protocol

import (
	"encoding/binary"
	"fmt"
)

// Number is the protocol's version, the first byte of every request and reply.
const Number = 2

// Sizes in bytes of requests and replies. What stands behind them is ignored by a
// reader that does not know it.
const (
	RequestSize  = 72
	ReplySize    = 40
	DescribeSize = 112
	RecordSize   = 48
	StampSize    = 24
	StatSize     = 104
)

// Operation says what a request asks for.
type Operation uint8

// Operations.
const (
	Describe Operation = 1 // what is lent
	Fetch    Operation = 2 // a page, or a part of one; the reply has it as payload
	Write    Operation = 3 // the payload becomes the page
	Adopt    Operation = 4 // the record of a pool becomes the server's
	Stat     Operation = 5 // what has been counted
	Stamps   Operation = 6 // the stamps of a run of pages; the reply has them as payload
	Witness  Operation = 7 // a record that the server keeps for a pool it is no member of

	// Operations of the cooperative cache: the first two of page servers, the others of hosts.
	Find Operation = 8  // as Fetch, or where the page is
	Move Operation = 9  // a page is at another host than before
	Get  Operation = 10 // a page that a host has; the reply has it as payload
	Put  Operation = 11 // the payload is a page for a host to keep
	Ages Operation = 12 // how old a host's frames are

	Direct Operation = 13 // where a client that can read the server's memory finds pages
)

var operations = [...]string{
	Describe: "describe", Fetch: "fetch", Write: "write", Adopt: "adopt", Stat: "stat", Stamps: "stamps", Witness: "witness",
	Find: "find", Move: "move", Get: "get", Put: "put", Ages: "ages", Direct: "direct",
}

func (o Operation) String() string {
	if int(o) < len(operations) && o != 0 {
		return operations[o]
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// Condition says when a Write is carried out.
type Condition uint16

// Conditions.
const (
	IfExpected Condition = 0 // the page's version is Expected; it becomes Next
	IfOlder    Condition = 1 // the page's version is below Next; it becomes Next
	Always     Condition = 2 // it becomes one more than it was, and at least Next
	Exactly    Condition = 3 // it becomes Next, whatever it was: a copy from another server
)

// Request is a request. Fields that its operation does not use are zero.
type Request struct {
	Operation Operation
	Condition Condition
	// Length in bytes of what is fetched or written.
	Length uint32
	// Incarnation of the server that the client takes it for.
	Incarnation uint64
	Page        uint64
	// Offset of the part that is fetched, in bytes from the beginning of the page.
	Offset uint32
	// Expected and Next are versions of the page, see Condition.
	Expected, Next uint64
	// Client is a number of the client's own, which is kept with what it writes.
	Client uint64
	// Epoch of the pool that the client knows.
	Epoch uint64
	// Ranks of a record, see SetRecord.
	Ranks uint64
}

// SetRecord puts the record of a pool into a request to adopt it, for the server that is member
// self, or to the witness.
func (r *Request) SetRecord(to Record, self int) {
	r.Client, r.Epoch, r.Expected, r.Page, r.Next, r.Ranks, r.Offset = to.Pool, to.Epoch, to.Base, to.Members, to.States, to.Ranks, uint32(self)
}

// Record is the record that SetRecord has put there.
func (r *Request) Record() Record {
	return Record{Pool: r.Client, Epoch: r.Epoch, Base: r.Expected, Members: r.Page, States: r.Next, Ranks: r.Ranks}
}

// Encode writes the request into the first RequestSize bytes of b.
func (r *Request) Encode(b []byte) {
	_ = b[:RequestSize]
	b[0], b[1] = Number, byte(r.Operation)
	le := binary.LittleEndian
	le.PutUint16(b[2:], uint16(r.Condition))
	le.PutUint32(b[4:], r.Length)
	le.PutUint64(b[8:], r.Incarnation)
	le.PutUint64(b[16:], r.Page)
	le.PutUint32(b[24:], r.Offset)
	le.PutUint32(b[28:], 0)
	le.PutUint64(b[32:], r.Expected)
	le.PutUint64(b[40:], r.Next)
	le.PutUint64(b[48:], r.Client)
	le.PutUint64(b[56:], r.Epoch)
	le.PutUint64(b[64:], r.Ranks)
}

// FormatError is a request or reply that cannot be read.
type FormatError struct {
	Field string
	Value uint64
	Want  string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("network memory protocol: %s is %d, not %s", e.Field, e.Value, e.Want)
}

// ParseRequest reads a request. The operation, and whether the values make sense for an
// export, are for the server to check.
func ParseRequest(b []byte) (Request, error) {
	if len(b) < RequestSize {
		return Request{}, &FormatError{"length of the request", uint64(len(b)), fmt.Sprintf("at least %d", RequestSize)}
	}
	if b[0] != Number {
		return Request{}, &FormatError{"version of the request", uint64(b[0]), fmt.Sprint(Number)}
	}
	le := binary.LittleEndian
	if reserved := le.Uint32(b[28:]); reserved != 0 {
		return Request{}, &FormatError{"reserved field of the request", uint64(reserved), "0"}
	}
	return Request{
		Operation: Operation(b[1]), Condition: Condition(le.Uint16(b[2:])), Length: le.Uint32(b[4:]),
		Incarnation: le.Uint64(b[8:]), Page: le.Uint64(b[16:]), Offset: le.Uint32(b[24:]),
		Expected: le.Uint64(b[32:]), Next: le.Uint64(b[40:]), Client: le.Uint64(b[48:]), Epoch: le.Uint64(b[56:]), Ranks: le.Uint64(b[64:]),
	}, nil
}
