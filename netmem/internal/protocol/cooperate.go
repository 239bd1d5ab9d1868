package protocol

import (
	"crypto/sha256"
	"fmt"
)

// Sizes in bytes of the replies of the cooperative cache.
const (
	FoundSize   = ReplySize + sha256.Size + 8
	SummarySize = ReplySize + 8 + 4*AgeBuckets
)

// MaxHosts bounds the clients of a pool that lend memory to each other.
const MaxHosts = 16

// Digest is the SHA-256 of a page (FIPS 180-4). A checksum would not do: a host that lies could forge one.
type Digest = [sha256.Size]byte

// DigestOf computes it.
func DigestOf(page []byte) Digest { return sha256.Sum256(page) }

// SetMove makes the request one that says where a page of a stamp is: not at from any more, but at to.
// Hosts count from 0; a negative number is none.
func (r *Request) SetMove(page uint64, s Stamp, from, to int) {
	r.Operation, r.Page, r.Expected, r.Client = Move, page, s.Version, s.Client
	r.Offset, r.Next = uint32(from+1), uint64(to+1)
}

// Moved returns what SetMove has put there. Errors are *FormatError.
func (r *Request) Moved() (s Stamp, from, to int, err error) {
	switch {
	case r.Offset > MaxHosts:
		err = &FormatError{"host that gives up the page", uint64(r.Offset), fmt.Sprintf("0 to %d", MaxHosts)}
	case r.Next > MaxHosts:
		err = &FormatError{"host that gets the page", r.Next, fmt.Sprintf("0 to %d", MaxHosts)}
	}
	return Stamp{Version: r.Expected, Client: r.Client}, int(r.Offset) - 1, int(r.Next) - 1, err
}

// SetCopy makes the request a Get or a Put of a page: of which pool, page and stamp, and for Put of
// which age in ticks.
func (r *Request) SetCopy(o Operation, pool, page uint64, s Stamp, age uint32) {
	r.Operation, r.Epoch, r.Page, r.Expected, r.Client, r.Next = o, pool, page, s.Version, s.Client, uint64(age)
}

// Stamp is that of SetCopy.
func (r *Request) Stamp() Stamp { return Stamp{Version: r.Expected, Client: r.Client} }

// Found has what the reply to Find says of a page. It follows the Reply.
type Found struct {
	Digest Digest
	// Host that has the page, or -1 if the page is the reply's payload.
	Host int32
	_    uint32
}

// ParseFound reads it. Errors are *FormatError.
func ParseFound(b []byte) (Found, error) {
	f, err := get[Found](b, "page that was found")
	if err == nil && (f.Host < -1 || f.Host >= MaxHosts) {
		err = &FormatError{"host of the page that was found", uint64(f.Host), fmt.Sprintf("-1 to %d", MaxHosts-1)}
	}
	return f, err
}

// AgeBuckets is the number of buckets in which ages are counted.
const AgeBuckets = 16

// Summary says how long a host has not used its frames. It follows the Reply to Ages.
type Summary struct {
	// Evicted counts the pages that have left the host's own cache since it was opened.
	Evicted uint64
	// Frames counts those that may be replaced, by the bucket of their age. Free ones are in the last.
	Frames [AgeBuckets]uint32
}

// ParseSummary reads the summary of a host that lends so many frames. Errors are *FormatError.
func ParseSummary(b []byte, lent uint64) (Summary, error) {
	a, err := get[Summary](b, "summary")
	all := uint64(0)
	for _, n := range a.Frames {
		all += uint64(n)
	}
	if err == nil && all > lent {
		err = &FormatError{"number of frames with an age", all, fmt.Sprintf("at most the %d that are lent", lent)}
	}
	return a, err
}
