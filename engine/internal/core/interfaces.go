package core

import (
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// ErrConfig is wrapped by the errors of New.
var ErrConfig = errors.New("bad engine configuration")

// Port is one end of a wire as the engine sees it. It is used by one goroutine
// at a time: the one that steps the engine.
type Port interface {
	// MTU is the largest frame in bytes, wire header included: MinMTU to MaxMTU
	// of package descriptors. It does not change.
	MTU() int
	// Checksum says whether frames need a checksum of their own on this wire.
	// It does not change.
	Checksum() bool
	// Reserve returns n bytes (at most MTU), aligned to 8, for one frame, or
	// nil if the wire can take no more now. The bytes are undefined. A second
	// Reserve before Commit replaces the first. The engine may take its time
	// before Commit, and receive meanwhile.
	Reserve(n int) []byte
	// Commit sends the frame in the space that Reserve returned last.
	Commit()
	// Flush ends a batch of Commits: all of them are on their way after it.
	Flush()
	// Receive returns the oldest frame that has arrived, aligned to 8, or nil.
	// It may be of any length and content. It stays valid until Release, before
	// which the engine may take its time, and send.
	Receive() []byte
	// Release gives back the frame that Receive returned last.
	Release()
	// LinkUp reports whether there is a port at the other end, as far as the
	// wire can tell.
	LinkUp() bool
}

// Progressive is implemented by ports that hand a frame over while it is still
// being written. New looks for it once. On other ports a frame leaves with
// Commit and arrives whole.
//
// On such a port Receive returns a frame as soon as bytes of it are there, at
// its full length, and Release may give up on a frame that is not whole yet:
// the port then skips what is still to come of it.
type Progressive interface {
	// Publish lets the peer read the first n bytes, wire header included, of the
	// frame in the space that Reserve returned last. They do not change any more.
	// n grows from call to call and stays below the frame's length. The frame
	// ends with Commit or Abort, and nothing else is reserved before.
	Publish(n int)
	// Abort ends a frame of which bytes have been published: the peer is to drop
	// it.
	Abort()
	// Arrived says how many bytes of the frame that Receive returned last may be
	// read, and whether its sender has ended it with Abort. The engine does not
	// rely on either: the peer may be another process.
	Arrived() (n int, aborted bool)
}

// Paced is implemented by ports of wires with a speed: what is published or committed
// begins to leave, and netTx is busy until it has left. New looks for it once. All of it is
// the goroutine's that uses the port.
type Paced interface {
	// Left says how long the wire is still busy with what was handed over, and how long it
	// takes until all of that has arrived: a nanosecond if the other end only has no room.
	// Neither is positive once it is so.
	Left() (busy, all time.Duration)
}

// Peers is implemented by ports of wires with many ends. Frames to some stations go through memory
// that only the two of them use. New looks for it once. All of it is the goroutine's that uses
// the port.
type Peers interface {
	// SetDestination selects the station for the next Reserve: Reserve returns nil while
	// there is no room on the way there. The zero station stands for one that is not known yet.
	SetDestination(station datasheet.MAC)
	// Peer returns the way to a station if nothing is lost on it, else nil. Soon says that there may
	// be one in a moment.
	Peer(station datasheet.MAC) (way Lossless, soon bool)
	Shorts
	// From is the way by which the frame came that Next has returned.
	From() Lossless
}

// Shorts takes short frames, whose header is one word: Endpoint in bits 15:0, PSN in 31:16, Ack in 47:32, Credit in 63:48.
type Shorts interface {
	// Next looks at the oldest frame that has arrived. A short one stays until Pass: its payload may change, if the
	// peer can write it, and what else Next has returned is a copy. All others are Receive's, which returns
	// no short ones.
	Next() (payload []byte, header uint64, b datasheet.ShortBeside, found Found)
	// Pass gives back the frame that Next has returned. With tell the peer learns of it now.
	Pass(tell bool)
}

// Lossless is implemented by ports of wires with two ends that neither lose, double,
// reorder nor damage a frame: while the link is down frames wait, and Reserve may return
// nil. New looks for it once. On a wire with many ends a way to a peer may be one (Peers); Receive is
// the port's then. All of it is the goroutine's that uses the port.
//
// Between two such ports of one wire connections do without acknowledgements: a frame
// that the peer's engine has released is where it belongs (SPEC.md 8.12).
type Lossless interface {
	// Wire is a number that both ends of the wire have in common, and no other wire
	// is likely to have. It changes when frames may have been lost after all, since the
	// wire was set up anew; it is zero while there is none.
	Wire() uint32
	// Mark is the position on the wire behind the frame that was committed last. It
	// is free-running, and moves by less than 2^31 while a frame is under way.
	Mark() uint32
	// Taken is the position up to which the peer had released all frames when Receive
	// last found that nothing had come, as far as this end knew: what the peer sent
	// before it released them has been received. It does not move while Receive returns
	// nil for another reason, and may lag behind for some calls of it.
	Taken() uint32
	// AwaitTaken says that this end waits for Taken to move: the next Receive looks.
	AwaitTaken()
	// Free tells the peer of all frames that have been released, as Receive does when it finds nothing.
	Free()
	// GiveCredit says that an endpoint of this end takes the messages below number credit.
	// Key is the one that it has drawn for its connection. If the peer asks for more, asked
	// is the credit at which it waits. ok is false if the endpoint has no credit words.
	GiveCredit(endpoint, key, credit uint32) (asked uint32, asks, ok bool)
	// TakeCredit returns the credit that an endpoint of the other end gives. Key is the one
	// that the endpoint has drawn. If that is not beyond known, it returns known, and asks
	// the peer for more.
	TakeCredit(endpoint, key, known uint32) uint32
	// Break changes Wire at both ends: a frame is going to be released that is not where
	// the peer will take it to be.
	Break()

	Shorts
	// Put sends a short frame whose payload has at most MTU bytes without a header. With ShortLent
	// that is a table of references (8.10): at most seven, or six beside immediate data. With last the peer
	// sees all frames at once, as Flush does it. Put returns the position behind the frame, as Mark does. ok is
	// false if the wire can take no more now; nothing has been sent then.
	Put(header uint64, b datasheet.ShortBeside, payload []byte, last bool) (mark uint32, ok bool)
	// PutPair is Put of a payload in two pieces.
	PutPair(header uint64, b datasheet.ShortBeside, first, second []byte, last bool) (mark uint32, ok bool)
	// Look is the position up to which the peer has released all frames, as far as this end knows. It may lag behind for
	// some calls of it, unless that is urgent.
	Look(urgent bool) uint32
}

// Found is the kind of frame that Next has found.
type Found uint8

const (
	FoundNone Found = iota
	FoundShort
	FoundOther // something for Receive
)

// Lender is implemented by ports whose peer can read memory of this host. New looks for it once. All of it is the
// goroutine's that uses the port.
type Lender interface {
	// A frame may say where bytes are in place of them (SPEC.md 8.10).

	// Lend says where the peer finds b: in which memory that it can read, and how
	// far from the start. id is not zero. ok is false if the peer cannot read all
	// of b, or could not borrow at all.
	Lend(b []byte) (id uint32, offset uint64, ok bool)
	// Lent says on whose behalf the frame that was committed last lends, not zero.
	Lent(owner uint32)
	// Revoke takes back what was lent on behalf of an owner, zero for all, in the frames
	// that were committed before. A peer that has not read it, or is reading it now,
	// learns that from Return. Where a port cannot tell owners apart, it takes all back.
	Revoke(owner uint32)
	// Borrow returns n bytes of the peer's memory id from offset on, or nil if it
	// cannot. They belong to the frame that Receive returned last, may change while
	// they are read, and stay until Return or Release.
	Borrow(id uint32, offset, n uint64) []byte
	// Return gives back what was borrowed since Receive. valid says that it had not
	// been revoked when the last of it was read: if it had, what was read may be
	// anything.
	Return() (valid bool)

	// Over a wire that loses nothing each end may also carry out RDMA operations on the other's memory (SPEC.md 8.15).

	// Table is the table that the peer can read and not write, nil if there is none. Once it
	// is nil it stays so, as after the port is closed.
	Table() *datasheet.DirectTable
	// AllowDirect says whether the peer may carry out operations; at first it may not. If not, it
	// waits as Settle does.
	AllowDirect(ok bool)
	// Where does what Lend does, whether the peer has mapped the memory yet or not.
	Where(b []byte) (id uint32, offset uint64, ok bool)
	// Settle waits until a copy has ended that the peer has begun before. What was taken out of
	// the table before it is not used any more then. A peer that takes seconds is disconnected.
	Settle()
	// Begin says that this end copies, and returns the peer's table. A peer that keeps to the
	// rules takes nothing back until End. Begin returns nil if wire is not the number of the
	// wire, or the peer does not let this end copy. Then there is nothing to end.
	Begin(wire uint32) *datasheet.DirectTable
	// Reach returns n bytes of the peer's memory id from offset on, for writing or for reading,
	// or nil if it cannot. They stay until End.
	Reach(id uint32, offset, n uint64, write bool) []byte
	// End ends what Begin began.
	End()
}

// Memory is host memory as the device sees it, by bus address. It is used by
// the goroutine that steps the engine or runs Exclusive.
type Memory interface {
	// Window returns the memory at iova as far as it is contiguous, 1 to n
	// bytes. It fails if iova cannot be accessed that way. The window is valid
	// until Generation changes.
	Window(iova, n uint64, write bool) ([]byte, error)
	// Generation changes whenever windows may have become invalid. It changes
	// only inside Engine.Exclusive.
	Generation() uint64
}

// Host is the engine's way to its host other than through memory. Both
// methods are called by the goroutine that steps the engine or runs Execute.
type Host interface {
	// Interrupt raises an interrupt vector.
	Interrupt(vector uint16)
	// AdminEntry delivers a reply or an event. Flags is not set yet. The entry
	// is valid during the call only.
	AdminEntry(e *datasheet.AdminEntry)
}
