// Package protocol has what clients and servers of network memory say to each other:
// one request and one reply for each operation, in the message of a ring, with a page
// as payload. netmem/PROTOCOL.md describes it; a test compares the two.
package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Number is the protocol's version, the first byte of every request and reply.
const Number = 2

// Sizes in bytes of requests and replies. What stands behind them is ignored by a
// reader that does not know it.
const (
	RequestSize  = 64
	ReplySize    = 40
	DescribeSize = 96
	StampSize    = 24
	StatSize     = 104
)

// Operation says what a request asks for.
type Operation uint8

// Operations.
const (
	Describe Operation = 1 // what is lent
	Fetch    Operation = 2 // a page; the reply has it as payload
	Write    Operation = 3 // the payload becomes the page
	Adopt    Operation = 4 // the record of a pool becomes the server's
	Stat     Operation = 5 // what has been counted
	Stamps   Operation = 6 // the stamps of a run of pages; the reply has them as payload

	// Operations of the cooperative cache: the first two of page servers, the others of hosts.
	Find Operation = 7  // as Fetch, or where the page is
	Move Operation = 8  // a page is at another host than before
	Get  Operation = 9  // a page that a host has; the reply has it as payload
	Put  Operation = 10 // the payload is a page for a host to keep
	Ages Operation = 11 // how old a host's frames are

	Direct Operation = 12 // where a client that can read the server's memory finds pages
)

var operations = [...]string{
	Describe: "describe", Fetch: "fetch", Write: "write", Adopt: "adopt", Stat: "stat", Stamps: "stamps",
	Find: "find", Move: "move", Get: "get", Put: "put", Ages: "ages", Direct: "direct",
}

// OfHosts says that hosts of the cooperative cache answer it, and page servers do not.
func (o Operation) OfHosts() bool { return o == Get || o == Put || o == Ages }

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
)

// Request is a request. Fields that its operation does not use are zero.
type Request struct {
	_         uint8 // Number, in a message
	Operation Operation
	Condition Condition
	// Length in bytes of what is fetched or written.
	Length uint32
	// Incarnation of the server that the client takes it for.
	Incarnation uint64
	Page        uint64
	// Offset is of Adopt, Find and Move: see SetRecord and SetMove.
	Offset   uint32
	reserved uint32
	// Expected and Next are versions of the page, see Condition.
	Expected, Next uint64
	// Client is a number of the client's own, which is kept with what it writes.
	Client uint64
	// Epoch of the pool that the client knows.
	Epoch uint64
}

// SetRecord puts the record of a pool into a request to adopt it. The server was let in since that epoch.
func (r *Request) SetRecord(to Record, since uint64, joining bool) {
	r.Client, r.Epoch, r.Expected, r.Page, r.Next, r.Offset = to.Pool, to.Epoch, to.Base, to.Members, since, 0
	if joining {
		r.Offset = 1
	}
}

// Record returns the values that SetRecord has put there.
func (r *Request) Record() (to Record, since uint64, joining bool) {
	return Record{Pool: r.Client, Epoch: r.Epoch, Base: r.Expected, Members: r.Page}, r.Next, r.Offset != 0
}

// Encode writes the request into the first RequestSize bytes of b.
func (r *Request) Encode(b []byte) {
	copy(b[:RequestSize], raw(r))
	b[0] = Number
}

// ErrBroken: what the other end has sent is not of the protocol.
var ErrBroken = errors.New("the other end breaks the protocol of network memory")

// FormatError is a request or reply that cannot be read. It matches ErrBroken.
type FormatError struct {
	Field string
	Value uint64
	Want  string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%v: %s is %d, not %s", ErrBroken, e.Field, e.Value, e.Want)
}

// Is says that it is ErrBroken.
func (e *FormatError) Is(target error) bool { return target == ErrBroken }

// ParseRequest reads a request. The operation, and whether the values make sense for an
// export, are for the server to check.
func ParseRequest(b []byte) (Request, error) {
	r, err := begin[Request](b, "request")
	if r.reserved != 0 {
		err = &FormatError{"reserved field of the request", uint64(r.reserved), "0"}
	}
	return r, err
}

// Result says how a request went.
type Result uint16

// Results. Of all but OK the server has changed nothing.
const (
	OK               Result = 0
	BadRequest       Result = 1  // it is not one of this protocol
	BadOperation     Result = 2  // no such operation, or a condition of none
	OutsideExport    Result = 3  // the page is not lent
	BadLength        Result = 4  // the payload is not what the request says, or not a page
	OtherIncarnation Result = 5  // the server is not the one that the client takes it for
	VersionConflict  Result = 6  // the page has another version; the reply has it
	Full             Result = 7  // all that is lent is in use
	ReadOnly         Result = 8  // clients may not write
	Busy             Result = 9  // too much is under way: ask again
	OtherPool        Result = 10 // the server belongs to another pool; the reply has its number
	OtherEpoch       Result = 11 // the server knows another epoch of the pool, which the reply has
	NotMember        Result = 12 // the server has not all that it should have
	VersionLimit     Result = 13 // there is no larger version
	NotHeld          Result = 14 // the host has no such page
)

// Results that are refusals of a kind have a text each.
var results = [...]string{
	"done", "not a request of this protocol", "no such operation or condition", "outside of what is lent",
	"a payload of another length", "the server has restarted", "the page has another version", "no memory left",
	"lent for reading only", "too much under way", "the server belongs to another pool",
	"the server knows another epoch of its pool", "the server has not all that it should have", "there is no larger version",
	"the host has no such page",
}

func (r Result) String() string {
	if int(r) < len(results) {
		return results[r]
	}
	return fmt.Sprintf("result %d", uint16(r))
}

// Flags of a reply.
const (
	// Unwritten: the page was not written since the server was started.
	Unwritten = 1 << 0
	// Held: another host has the page, too.
	Held = 1 << 1
	// Left: the host has given the page away, and has it no more.
	Left = 1 << 2
)

// Reply begins all replies.
type Reply struct {
	_         uint8     // Number, in a message
	Operation Operation // of the request
	Result    Result
	// Length in bytes of the payload.
	Length      uint32
	Incarnation uint64 // of the server
	Stamp              // of the page, as it is after the operation
}

// Encode writes the reply into the first ReplySize bytes of b.
func (r *Reply) Encode(b []byte) {
	copy(b[:ReplySize], raw(r))
	b[0] = Number
}

// ParseReply reads a reply to a request for operation o.
func ParseReply(o Operation, b []byte) (Reply, error) {
	r, err := begin[Reply](b, "reply")
	if err != nil {
		return r, err
	}
	r.reserved = 0
	if r.Operation != o {
		return Reply{}, &FormatError{"operation of the reply", uint64(r.Operation), o.String()}
	}
	if int(r.Result) >= len(results) {
		return Reply{}, &FormatError{"result of the reply", uint64(r.Result), fmt.Sprintf("0 to %d", len(results)-1)}
	}
	return r, nil
}

// PutBody writes what follows a Reply, to which v points and for which b has room, behind it. It returns the size of both.
func PutBody(b []byte, v any) int {
	n, _ := binary.Encode(b[ReplySize:], binary.LittleEndian, v)
	return ReplySize + n
}

// get reads a value of fixed size behind a Reply. what names it in the *FormatError of a reply that is too short.
func get[T any](b []byte, what string) (v T, err error) {
	if _, err := binary.Decode(b[min(ReplySize, len(b)):], binary.LittleEndian, &v); err != nil {
		return v, &FormatError{"length of the " + what, uint64(len(b)), fmt.Sprintf("at least %d", ReplySize+binary.Size(v))}
	}
	return v, nil
}

// Description describes the memory that a server lends. It follows the Reply to Describe and Adopt.
type Description struct {
	// Record of the pool that the server belongs to; zero if none.
	Record
	// Span is the end of the addresses, and Capacity the room for pages, in
	// bytes.
	Span, Capacity uint64
	// Page is the size of a page in bytes.
	Page uint32
	// ReadOnly: writes are refused.
	ReadOnly bool
	_        [3]byte
}

// Pages that may be lent, and how far addresses may reach.
const (
	MinPage  = 4 << 10
	MaxPage  = 64 << 10
	MaxPages = 1 << 32
)

// ParseDescription reads a description, and refuses one that makes no sense.
func ParseDescription(b []byte) (Description, error) {
	d, err := get[Description](b, "description")
	if err != nil {
		return d, err
	}
	if d.Page < MinPage || d.Page > MaxPage || d.Page&(d.Page-1) != 0 {
		return Description{}, &FormatError{"page of the description", uint64(d.Page), fmt.Sprintf("a power of two from %d to %d", MinPage, MaxPage)}
	}
	if err := d.Record.Check(); err != nil {
		return Description{}, err
	}
	if page := uint64(d.Page); d.Span == 0 || d.Span%page != 0 || d.Span/page > MaxPages {
		return Description{}, &FormatError{"span of the description", d.Span, fmt.Sprintf("1 to %d pages", uint64(MaxPages))}
	}
	return d, nil
}

// Counters of a server since it was started. They follow the Reply to Stat.
type Counters struct {
	Fetches  uint64 `json:"fetches" help:"Requests to fetch that were granted." unit:"requests"`
	Writes   uint64 `json:"writes" help:"Requests to write that were carried out." unit:"requests"`
	Refused  uint64 `json:"refused" help:"Requests of any kind that were refused." unit:"requests"`
	BytesOut uint64 `json:"bytes_fetched" help:"Bytes of pages that were fetched." unit:"bytes"`
	BytesIn  uint64 `json:"bytes_written" help:"Bytes of pages that were written." unit:"bytes"`
	Stored   uint64 `json:"bytes_stored" help:"Bytes of pages that are stored." unit:"bytes" kind:"gauge"`
	Capacity uint64 `json:"capacity_bytes" help:"Bytes of pages that can be stored." unit:"bytes" kind:"gauge"`
	Clients  uint64 `json:"clients" help:"Clients that are connected." unit:"clients" kind:"gauge"`
}

// ParseCounters reads counters. Errors are *FormatError.
func ParseCounters(b []byte) (Counters, error) { return get[Counters](b, "counters") }

// Record says to which pool a server belongs, and which configuration of it the server knows. The zero Record is
// that of no pool.
type Record struct {
	Pool, Epoch uint64
	// Base is the version of pages that were never written.
	Base uint64
	// Members stands for the names of the servers and the number of copies: clients that name others do not use
	// the pool.
	Members uint64
}

// Check says what is wrong with a record. Errors are *FormatError.
func (r Record) Check() error {
	if (r.Pool == 0) != (r.Epoch == 0) {
		return &FormatError{"epoch of the record", r.Epoch, "more than 0 of a pool, and 0 of none"}
	}
	return nil
}

// Stamp is the identity of a page's content: its version, and the client that has written it.
type Stamp struct {
	Version, Client uint64
	Flags           uint32
	reserved        uint32
}

// Same reports whether two stamps are of the same bytes.
func (s Stamp) Same(t Stamp) bool { return s.Version == t.Version && s.Client == t.Client }

// Encode writes the stamp into the first StampSize bytes of b.
func (s *Stamp) Encode(b []byte) { copy(b[:StampSize], raw(s)) }

// StampAt reads the stamp in the first StampSize bytes of b.
func StampAt(b []byte) (s Stamp) {
	copy(raw(&s), b[:StampSize])
	s.reserved = 0
	return s
}
