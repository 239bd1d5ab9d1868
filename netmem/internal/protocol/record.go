package protocol

import "encoding/binary"

// MaxServers is the most servers that a pool has.
const MaxServers = 16

// State of a server in the record of its pool.
type State uint8

const (
	// Member: it has all pages that it should have.
	Member State = 0
	// Joining: it gets what is written, and copies of the rest, until it has all.
	Joining State = 1
	// Out: the others go on without it.
	Out State = 2
	// Vacant: no server has the number, in a pool with a name.
	Vacant State = 3
)

func (s State) String() string {
	switch s {
	case Member:
		return "member"
	case Joining:
		return "joining"
	case Vacant:
		return "vacant"
	}
	return "out"
}

// Record says which servers of a pool have all that they should have. A pool has one record at a
// time; a newer one has a larger Epoch. The zero Record is that of no pool.
type Record struct {
	Pool, Epoch uint64
	// Base is the version of pages that were never written.
	Base uint64
	// Members stands for the names of the servers and the witness (Digest in package netmem):
	// clients that name others do not use the pool. In a pool with a name the upper half stands for
	// that name and the witness. The lower half stands for the server that has come last.
	Members uint64
	// States has two bits for each server, in the order of their names; 8 bits from bit 32 on, how
	// many servers hold each page; and from bit 40 on the generation of a pool with a name.
	States uint64
	// Ranks has four bits for each server: those that began to join later have larger ones. Of the
	// copies of a page the one of the lowest rank decides, and the one of the highest is read.
	Ranks uint64
}

// Copies is on how many servers each page is.
func (r Record) Copies() int { return int(r.States >> copiesShift & 0xff) }

const (
	copiesShift     = 32
	generationShift = 40
	newestMask      = 1<<32 - 1 // of Members
)

// Generation of a pool with a name counts its moves: it grows by one when pages begin to move, and
// when they have. It is odd in between. That of a pool without a name is 0.
func (r Record) Generation() uint64 { return r.States >> generationShift }

// Named says that the pool has a name.
func (r Record) Named() bool { return r.Generation() != 0 }

// Moving says that pages move: none is read or written.
func (r Record) Moving() bool { return r.Generation()%2 == 1 }

// Newest stands for the server of a pool with a name that has come last.
func (r Record) Newest() uint32 { return uint32(r.Members) }

// SamePool says that two records are of one pool.
func (r Record) SamePool(o Record) bool { return r.Pool == o.Pool && r.SameMembers(o.Members) }

// SameMembers says that Members stands for the same, but for which server has come last.
func (r Record) SameMembers(members uint64) bool {
	return r.Members == members || r.Named() && (r.Members^members)&^newestMask == 0
}

// FirstNamed is the first record of a pool with a name, of so many servers.
func FirstNamed(pool, base, members uint64, copies, servers int) Record {
	r := FirstRecord(pool, base, members, copies)
	r.States |= 2<<generationShift | uint64(1<<32-1)&^(1<<(2*servers)-1)
	return r
}

// Move is the next record, in which the pages of servers that are out begin to move. If newcomer is
// not negative, that number, which was vacant, is of the server that newest stands for.
func (r Record) Move(newcomer int, newest uint32) Record {
	r.States += 1 << generationShift
	if newcomer < 0 {
		return r.With(0, r.State(0))
	}
	r.Members = r.Members&^newestMask | uint64(newest)
	ranks := r.Ranks
	r = r.With(newcomer, Joining)
	r.Ranks = ranks // all copies of a page are the same when a move has ended
	return r
}

// Moved is the next record, in which pages have moved; without done, all is as before the move.
func (r Record) Moved(done bool) Record {
	r.Epoch++
	r.States += 1 << generationShift
	for i := range MaxServers {
		switch s := r.State(i); {
		case s == Joining && done:
			r.States &^= 3 << (2 * i)
		case s == Joining, s == Out && done:
			r.States |= 3 << (2 * i)
		}
	}
	return r
}

// FirstRecord is that of a new pool.
func FirstRecord(pool, base, members uint64, copies int) Record {
	return Record{Pool: pool, Epoch: 1, Base: base, Members: members, States: uint64(copies) << copiesShift}
}

// State of a server, 0 to MaxServers-1.
func (r Record) State(server int) State { return State(r.States >> (2 * server) & 3) }

// Rank of a server, 0 to MaxServers-1.
func (r Record) Rank(server int) int { return int(r.Ranks >> (4 * server) & 15) }

// With is the next record, in which a server has another state. One that begins to join comes
// behind all others.
func (r Record) With(server int, s State) Record {
	r.Epoch++
	r.States = r.States&^(3<<(2*server)) | uint64(s)<<(2*server)
	if s != Joining {
		return r
	}
	var taken [MaxServers]bool // by the others
	for i := range MaxServers {
		taken[r.Rank(i)] = taken[r.Rank(i)] || i != server
	}
	var ranks uint64
	last := 0
	for i := range MaxServers {
		rank := 0 // how many lower ones are taken
		for n := range r.Rank(i) {
			if taken[n] {
				rank++
			}
		}
		if i != server {
			ranks |= uint64(rank) << (4 * i)
			last = max(last, rank)
		}
	}
	r.Ranks = ranks | uint64(last+1)<<(4*server)
	return r
}

// Check says what is wrong with a record. Errors are *FormatError.
func (r Record) Check() error {
	switch {
	case r.Pool != 0 && (r.Copies() == 0 || r.Copies() > MaxServers):
		return &FormatError{"copies of the record", uint64(r.Copies()), "1 to 16"}
	case !r.Named() && r.States&(r.States>>1)&0x55555555 != 0:
		return &FormatError{"state of a server", r.States, "0 to 2 each"}
	case (r.Pool == 0) != (r.Epoch == 0):
		return &FormatError{"epoch of the record", r.Epoch, "more than 0 of a pool, and 0 of none"}
	}
	return nil
}

// Append appends the record to b, in RecordSize bytes.
func (r Record) Append(b []byte) []byte {
	for _, v := range [...]uint64{r.Pool, r.Epoch, r.Base, r.Members, r.States, r.Ranks} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// ParseRecord reads a record. Errors are *FormatError.
func ParseRecord(b []byte) (Record, error) {
	if len(b) != RecordSize {
		return Record{}, &FormatError{"length of the record", uint64(len(b)), "48"}
	}
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	r := Record{Pool: at(0), Epoch: at(1), Base: at(2), Members: at(3), States: at(4), Ranks: at(5)}
	if err := r.Check(); err != nil {
		return Record{}, err
	}
	return r, nil
}

// Stamp is the identity of a page's content: its version, and the client that has written it.
type Stamp struct {
	Version, Client uint64
	Flags           uint32
}

// Same reports whether two stamps are of the same bytes.
func (s Stamp) Same(t Stamp) bool {
	return s.Version == t.Version && s.Client == t.Client
}

// Encode writes the stamp into the first StampSize bytes of b.
func (s Stamp) Encode(b []byte) {
	_ = b[:StampSize]
	le := binary.LittleEndian
	le.PutUint64(b, s.Version)
	le.PutUint64(b[8:], s.Client)
	le.PutUint32(b[16:], s.Flags)
	le.PutUint32(b[20:], 0)
}

// StampAt reads the stamp in the first StampSize bytes of b.
func StampAt(b []byte) Stamp {
	_ = b[:StampSize]
	le := binary.LittleEndian
	return Stamp{Version: le.Uint64(b), Client: le.Uint64(b[8:]), Flags: le.Uint32(b[16:])}
}
