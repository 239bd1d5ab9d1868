// Package shm is a wire between two processes of one host: frames cross in
// memory that both map, without a system call.
//
// [New] makes one end at a socket; the other process makes the other. Most programs use it
// through an address: "emu:?wire=shm:/run/x.sock" at both ends.
//
// # Set-up
//
// The processes meet at a UNIX socket of type SOCK_SEQPACKET (unix(7)), in the
// file system or, with a name that starts with @, in the abstract namespace. One
// listens, the other connects. Every message has 32 bytes, little-endian: kind
// (u32), id (u32), and three numbers a, b and c (u64).
//
//	kind  name        from      id       a               b             c
//	1     hello       connector magic    version, flags  MTU                        + timerfd
//	2     welcome     listener  magic    version, flags  MTU           ring         + memory, timerfd
//	3     ready       connector
//	4     refuse      listener           reason          its version
//	5     link        both      number   1: plug is in
//	6     link seen   both      number
//	7     export      both      region   offset in file  bytes                      + file
//	8     exported    both      region   errno
//	9     unexport    both      region
//	10    unexported  both      region
//	11    goodbye     both
//	12    table       both               bytes                              + file
//	13    marks       both               bytes           number             + file
//
// The version, in bits 31:0, is 3; a listener refuses another one. Flags stand in bits 63:32: 1 shares
// memory, 2 takes part in membarrier(2), 4 lends memory for writing. What only one of the two has set does
// not count. The socket stays open: it ends with the process that holds it, which tells of a peer's death.
//
// # Memory
//
// The listener makes a memfd for each connection, sealed against shrinking and
// growing, and both check seals and size before they map it. It has two parts,
// the first for frames from listener to connector, the second for the others.
// For rings of R bytes (a power of two):
//
//	0          freed     u32: bytes that the receiver has given back
//	4          frames    u32: frames that it has given back
//	128        asleep    u32: not 0 if the receiver wants to be woken, 2 if it wants a mark
//	256        void      u64: which loans of the sender's have been revoked
//	384        number    u32: of the wire, drawn by the listener (first part)
//	512        copying   u32: odd while the sender copies to or from lent memory
//	4096       slots     128 bytes for each frame, R/256 of them
//	4096+R/2   frames    R bytes; each frame in one piece, aligned to 64
//
// A slot has the word of a frame and the header and payload of a short one (SPEC.md 8.12):
//
//	0    word     u64
//	8    header   u64: of a short frame
//	16   payload  of a short frame of up to 112 bytes; longer ones have theirs in the ring
//
// If a short frame has immediate data, these are a u32 at 16. Its payload is at 24, or in the ring if it
// has more than 104 bytes.
//
// The credit words of both directions (SPEC.md 8.12) follow, those
// of the first one first. For each endpoint below 4096 of the direction's receiver there are
// two, 8192 in all:
//
//	0   given   u64: written by the receiver
//	8   asked   u64: written by the sender
//
// A word holds all that is to be known of a frame:
//
//	bits 15:0   length of the frame in bytes
//	bits 31:16  how many of them have arrived
//	bits 39:32  1: the frame has ended, 2: it was given up, or its loans are void;
//	            4: it is short, 8: and has references in place of a payload,
//	            16: and has immediate data, 32: and is an RDMA write
//	bits 63:40  number of the frame plus one, modulo 2^24
//
// Of a short frame, length is that of the payload, and bits 31:16 are Tag. Its word alone tells that all of it is
// there. One whose payload is in its slot takes none of the ring. Room is counted in
// slots and in bytes, and the receiver tells both at once, as one word of 64 bits.
//
// Frame i has slot i mod R/256. It follows its predecessor in the ring, at the
// next multiple of 64, or at the start if it would not fit before the end. The
// receiver polls the word of the next frame. At once it fetches the second line of its slot.
// So a frame of two cache lines is there about as soon as its word. There is no index that the two sides share; the first
// word of a batch is written last. A frame that comes in parts has its word
// written again and again; one that is given up is skipped.
//
// # Loans
//
// A frame may say where bytes are in memory that its sender has exported, instead
// of carrying them; the wire does not know which do. A sender that needs the
// memory for something else while such frames may not have been read revokes
// their loans: it writes void, and then lets the memory change.
//
//	bits 31:0  number of a frame
//	bit 32     the loans of the frames before that number are void
//	bit 33     all are: the session has ended
//
// A receiver reads the bytes, then void, in this order, and drops a frame whose
// loan is void: what it has read may be anything. The frames before a number are
// the R/256 before it that can be on their way. The loans of one frame are void by bit 33 of
// its word, too, which the receiver reads after void: so other frames on the wire keep theirs.
//
// # Copies
//
// Ends that both have flag 1 give each other a table (SPEC.md 8.15), in a file that only its
// owner can write. A process that is going to copy makes copying odd, which orders as a full
// barrier does, and looks at the table behind it. At the end of the copy it makes the
// word even. The owner of the memory takes an entry out of the table, makes a full barrier, and
// waits while copying has the same odd value. So no copy uses an entry that
// was taken away. A process that is gone copies no more. One that takes 2 s is disconnected.
//
// If both have flag 4 as well, c of an export is 1 where the file can be mapped for writing.
//
// # Frames that wait
//
// While a plug is out nothing is lost: Reserve has no room, and what was sent before
// arrives once both plugs are in. A receiver tells by freed what it has released, in
// order, which is enough for [engine.Lossless].
//
// # Sleeping
//
// A receiver that is going to sleep sets asleep and has all processors execute
// a barrier (membarrier(2)), so that senders need none. The sender clears asleep
// and, if it was set, wakes the receiver: it rings the bell that it was given with the greeting.
//
// A bell is a timerfd (timerfd_create(2)) that the sender sets to expire at once. It costs less than
// half of a message. It is no eventfd, because the flags
// of a descriptor that two processes share are whatever either of them sets: a peer
// could make our write to it block. Setting a timer never does, and who is woken by
// one need not read it.
//
// No sleeper can be woken more often than it has gone to sleep: a peer that tries has
// broken the rules.
//
// # Marks
//
// A process with many peers does not look at each of them all the time. It gives them a file of a page,
// and each a number, of a bit in words of 64 bits. A receiver that has given marks and does not
// look any more sets asleep to 2. The sender clears it after a frame, and sets its bit. It does so too where it wakes the
// receiver. All peers can write to the page: who owns it takes a bit for a hint, and now and then looks at peers that
// have none.
//
// # End
//
// Frames that a peer has sent before it left arrive, as they may say why: as many as
// fit into the ring at most, and none of them once another peer has come.
//
// # Another process
//
// A process can give its end to another one ([Port.Pause], [State.Restore]). It passes the socket, the
// file of the memory, both bells, and where it is in the rings. The peer does not notice. A bell that has
// rung rings once more for the new owner, which counts one wake-up more than the old one.
//
// # Trust
//
// The peer may write anything at any time. Where a frame lies is computed here,
// never read; words and counts are read once and checked, and what cannot be
// true ends the connection with a [PeerError]. What Receive returns is memory
// that the peer can still change.
//
// Sharing memory ([Options].Share) is another matter: it lets the peer read all
// of each file that is exported, whenever it likes. It cannot write there: the
// file is sealed (F_SEAL_FUTURE_WRITE, Linux 5.1), so that opening it anew does not
// help. What cannot be sealed is not exported. It is for processes that may know
// all of each other, and off unless both switch it on.
//
// [Options].ShareWrite goes further. The peer can write to all of a file that ExportWritable
// exports, whenever it likes. No entry in a table, or its end, keeps it from that.
package shm
