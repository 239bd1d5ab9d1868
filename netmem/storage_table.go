package netmem

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A file that is lent has a sidecar beside it, NAME.trapeze. All numbers are little-endian,
// and all sums CRC-32C (RFC 3720, section 12.1).
//
//	offset       size        what
//	0            4096        header: magic, format, size of a page, number of pages, sum
//	4096         2 * 4096    two slots of the server's state, written in turns
//	12288        4096 + page the journal: the page that was written last
//	16384 + page 32 * pages  the table: a stamp of each page
const (
	block       = 4096
	sideMagic   = "trapeze\x01"
	sideFormat  = 1
	stateAt     = block
	journalAt   = 3 * block
	entrySize   = 32
	mostRecord  = block - stateSize
	stateSize   = 48
	journalHead = 56 // of the header of the journal, with its sum
)

// sideName is the name of the sidecar of a file.
func sideName(file string) string { return file + ".trapeze" }

// SidecarError is a sidecar, the file beside one that is lent, that cannot be used. It is
// never overwritten: when it is removed, the file is lent as one that is not known yet.
type SidecarError struct {
	Path  string
	Field string
	Value uint64
	Want  string
}

func (e *SidecarError) Error() string {
	return fmt.Sprintf("%s: its %s is %d, not %s (remove it to lend the file as a new one)", e.Path, e.Field, e.Value, e.Want)
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

func sumOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// sideLayout holds the header's fields.
type sideLayout struct{ page, count uint64 }

func (l sideLayout) tableAt(page uint64) int64 {
	return int64(journalAt + block + l.page + page*entrySize)
}
func (l sideLayout) size() int64 { return l.tableAt(l.count) }

func (l sideLayout) header() []byte {
	b := make([]byte, block)
	copy(b, sideMagic)
	le.PutUint32(b[8:], sideFormat)
	le.PutUint32(b[12:], uint32(l.page))
	le.PutUint64(b[16:], l.count)
	le.PutUint32(b[24:], sumOf(b[:24]))
	return b
}

// check compares a sidecar's header and size in bytes with what is to be lent.
func (l sideLayout) check(b []byte, size int64) error {
	bad := func(field string, value uint64, want any) error {
		return &SidecarError{Field: field, Value: value, Want: fmt.Sprint(want)}
	}
	switch {
	case len(b) < block:
		return bad("size", uint64(size), l.size())
	case string(b[:len(sideMagic)]) != sideMagic:
		return bad("magic number", le.Uint64(b), "that of a sidecar")
	case le.Uint32(b[24:]) != sumOf(b[:24]):
		return bad("checksum", uint64(le.Uint32(b[24:])), "that of its header")
	case le.Uint32(b[8:]) != sideFormat:
		return bad("format", uint64(le.Uint32(b[8:])), sideFormat)
	case uint64(le.Uint32(b[12:])) != l.page:
		return bad("size of a page", uint64(le.Uint32(b[12:])), l.page)
	case le.Uint64(b[16:]) != l.count:
		return bad("number of pages", le.Uint64(b[16:]), l.count)
	case size != l.size():
		return bad("size", uint64(size), l.size())
	}
	return nil
}

// sideState is a server's state beside the stamps.
type sideState struct {
	turn  uint64 // which of two states is the newer one; its slot is turn%2
	base  uint64
	joins uint32
	boot  [16]byte // of the system on which the file is lent now; zero after Close
	// record is that of the pool, as the protocol encodes it; empty if there is none.
	record []byte
}

// encode fills a slot. The record is at most mostRecord bytes.
func (s *sideState) encode() []byte {
	b := make([]byte, block)
	le.PutUint64(b[4:], s.turn)
	le.PutUint64(b[12:], s.base)
	le.PutUint32(b[20:], s.joins)
	copy(b[24:40], s.boot[:])
	le.PutUint32(b[40:], uint32(len(s.record)))
	copy(b[stateSize:], s.record)
	le.PutUint32(b, sumOf(b[4:]))
	return b
}

// parseState reads a slot, if it is whole.
func parseState(b []byte) (s sideState, whole bool) {
	if len(b) < block || le.Uint32(b) != sumOf(b[4:block]) {
		return s, false
	}
	n := le.Uint32(b[40:])
	if n > mostRecord {
		return s, false
	}
	s = sideState{turn: le.Uint64(b[4:]), base: le.Uint64(b[12:]), joins: le.Uint32(b[20:])}
	copy(s.boot[:], b[24:40])
	if n > 0 {
		s.record = append(s.record, b[stateSize:][:n]...)
	}
	return s, true
}

// parseStates reads both slots and returns the newer one that is whole.
func parseStates(b []byte) (sideState, bool) {
	if len(b) < 2*block {
		return sideState{}, false
	}
	x, okX := parseState(b[:block])
	y, okY := parseState(b[block:])
	if !okX || okY && y.turn > x.turn {
		return y, okY
	}
	return x, true
}

// encode fills an entry of the table.
func (p stamp) encode(b []byte) {
	_ = b[:entrySize]
	le.PutUint64(b, p.version)
	le.PutUint64(b[8:], p.client)
	le.PutUint32(b[16:], p.sum)
	le.PutUint32(b[20:], p.state)
	le.PutUint32(b[24:], 0)
	le.PutUint32(b[28:], sumOf(b[:28]))
}

// parseStamp reads an entry of the table. One of zeros was never written; one whose sum is
// wrong is of a page about which nothing is known.
func parseStamp(b []byte) stamp {
	if [entrySize]byte(b[:entrySize]) == [entrySize]byte{} {
		return stamp{}
	}
	if le.Uint32(b[28:]) != sumOf(b[:28]) {
		return stamp{state: written | damaged}
	}
	return stamp{version: le.Uint64(b), client: le.Uint64(b[8:]), sum: le.Uint32(b[16:]), state: le.Uint32(b[20:])}
}

// journal is the page that is being written, or was written last.
type journal struct {
	page uint64
	stamp
	data []byte
}

// journalSummed is the number of bytes of its header under the sum of a journal. The stamp's own sum
// is not among them: a CRC over data and the CRC of the data is the same for all data.
const journalSummed = 16 + entrySize - 4

// encode fills in what stands before the data.
func (j *journal) encode(b []byte) {
	clear(b[:block])
	copy(b, sideMagic)
	le.PutUint64(b[8:], j.page)
	j.stamp.encode(b[16:])
	le.PutUint32(b[journalHead-4:], sumOf(b[:journalSummed]))
}

// parseJournal reads the journal of a layout, if it is whole. The data is lent from b.
func (l sideLayout) parseJournal(b []byte) (j journal, whole bool) {
	if uint64(len(b)) < block+l.page || string(b[:len(sideMagic)]) != sideMagic || le.Uint32(b[journalHead-4:]) != sumOf(b[:journalSummed]) {
		return j, false
	}
	j = journal{page: le.Uint64(b[8:]), stamp: parseStamp(b[16:]), data: b[block:][:l.page]}
	return j, j.page < l.count && j.state&written != 0 && j.state&damaged == 0 && j.sum == sumOf(j.data)
}
