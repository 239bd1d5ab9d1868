package shm

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// Role says which side of the connection a port is.
type Role int

const (
	// RoleAuto connects if there is a listener, and else listens.
	RoleAuto Role = iota
	// RoleListen makes the socket and waits for a peer.
	RoleListen
	// RoleConnect waits until there is a listener.
	RoleConnect
)

const (
	// DefaultMTU carries 16 KiB of payload. A message of 64 KiB takes the least
	// time in frames of that size: smaller ones cost more each,
	// and larger ones have one side wait for the other unless they come in parts.
	DefaultMTU = datasheet.HeaderSize + 16<<10
	// DefaultRing is the size of the ring of each direction in bytes.
	DefaultRing = 256 << 10
	// MinRing and MaxRing bound a ring. A ring of MinRing has slots for four
	// pages and holds frames of up to MinRing/4 bytes; MaxRing bounds what a peer can
	// have us map.
	MinRing = 32 << 10
	MaxRing = 64 << 20
)

// Options are the choices of New. Path is needed.
type Options struct {
	// Path of the socket, at most 107 bytes; @ and a name for one in the abstract
	// namespace. A socket in the file system is its owner's alone (mode 0600): who
	// may connect is the peer. At an abstract one, processes of the same user and
	// root are let in.
	Path string
	Role Role
	// MTU is the largest frame that this side sends, in bytes; DefaultMTU if zero.
	// A port that finds its peer while it is opened takes the smaller of both.
	MTU int
	// Ring is the size of each direction's ring in bytes, rounded up to a power
	// of two that holds at least four of the largest frames; DefaultRing if zero.
	// The listener's counts.
	Ring int
	// Share makes exported memory readable by the peer, if it agrees.
	Share bool
	// ShareWrite, beside Share, makes memory that is exported with ExportWritable writable by
	// the peer, if it agrees: it can then write to all of it at any time.
	ShareWrite bool
	// Transferable keeps the file of the memory open, so that Adopt's port can go to another
	// process (Port.Pause). It is for RoleListen, without Share. Afterwards the port leaves no marks at its peer.
	Transferable bool
	// Marks, unless it is nil, is where the peer can mark itself, by number Mark; see Idle.
	Marks *Marks
	Mark  int
}

// Check reports what New would refuse, as an error that wraps ends.ErrOptions.
func (o Options) Check() error { return o.complete() }

func (o *Options) complete() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ends.ErrOptions}, a...)...)
	}
	o.MTU, o.Ring = cmp.Or(o.MTU, DefaultMTU), cmp.Or(o.Ring, DefaultRing)
	switch {
	case unixsocket.CheckPath(o.Path) != nil:
		return bad("%w", unixsocket.CheckPath(o.Path))
	case o.Role < RoleAuto || o.Role > RoleConnect:
		return bad("role is %d", int(o.Role))
	case o.MTU < datasheet.MinMTU || o.MTU > datasheet.MaxMTU:
		return bad("MTU %d is not in %d..%d", o.MTU, datasheet.MinMTU, datasheet.MaxMTU)
	case o.ShareWrite && !o.Share:
		return bad("memory that is not shared cannot be shared for writing")
	case o.Transferable && (o.Role != RoleListen || o.Share):
		return bad("only a port that listens and shares nothing is transferable")
	case o.Marks != nil && (o.Mark < 0 || o.Mark >= MaxMarks):
		return bad("mark %d is not in 0..%d", o.Mark, MaxMarks-1)
	case o.Ring < 0 || o.Ring > MaxRing:
		return bad("ring of %d bytes is not in 1..%d", o.Ring, MaxRing)
	}
	return nil
}

// ringFor returns the size of rings that were asked to have wish bytes and must
// carry frames of up to mtu bytes.
func ringFor(wish, mtu int) int {
	return 1 << bits.Len(uint(max(wish, 4*mtu, MinRing)-1))
}
