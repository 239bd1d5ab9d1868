package memif

import (
	"cmp"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// Role says which side of memif a port is. Older documents call the server
// master and the client slave.
type Role int

const (
	// Client connects to a server's socket, and again whenever the connection
	// has ended. The shared memory is its own.
	Client Role = iota + 1
	// Server has the socket, for one port.
	Server
)

func (r Role) String() string {
	switch r {
	case Client:
		return "client"
	case Server:
		return "server"
	}
	return fmt.Sprintf("role %d", int(r))
}

const (
	// DefaultMTU, DefaultBuffer and DefaultRing are those of DPDK and VPP:
	// 1024 buffers of 2048 bytes a ring. A frame of DefaultMTU fits one buffer.
	DefaultMTU    = 2048
	DefaultBuffer = 2048
	DefaultRing   = 1024
	// MaxRing is the most that DPDK and VPP take.
	MaxRing = 1 << ring.MaxLog2
	// MaxQueues bounds the rings of each direction. It is a choice of ours.
	MaxQueues = 16
	// DefaultTimeout is the time that a peer may take for each step of connecting.
	DefaultTimeout = 5 * time.Second
	// DefaultMaxMemory limits the memory that a client may have a server map.
	DefaultMaxMemory = 1 << 30
	// MaxName and MaxSecret bound strings in bytes.
	MaxName   = protocol.NameSize - 1
	MaxSecret = protocol.SecretSize - 1
)

// Options are the choices of New. Socket and Role are needed. The tags are those of addresses, see package option.
type Options struct {
	// Socket is a path of at most 107 bytes, or "@" and an abstract name.
	Socket string
	Role   Role `option:"role" oneof:",client,server" required:"true"`
	// ID is the number of the interface, the same at both ends.
	ID uint32 `option:"id"`
	// Secret is empty, or what the client must know: at most MaxSecret bytes
	// without a zero. It is on the socket as it is.
	Secret string `option:"secret" range:"1..23"`
	// Name is our name for the peer, at most MaxName bytes;
	// "trapeze" if empty.
	Name string
	// Queues is the number of rings in each direction, 1 to MaxQueues: of a
	// client what it asks for, 1 if zero; of a server what it grants at most,
	// MaxQueues if zero.
	Queues int `option:"queues" range:"1..16"`
	// Ring is the number of buffers of each ring, a power of two from 2 to
	// MaxRing; DefaultRing if zero. Of a server it is the most that it grants,
	// MaxRing if zero.
	Ring int `option:"ring" range:"2..16384"`
	// Buffer is the size of a client's buffers in bytes, a multiple of 64 up to
	// 65536; DefaultBuffer if zero. Longer frames take several. A server uses
	// the buffers that it finds.
	Buffer int `option:"buffer" range:"64..65536"`
	// MTU is the largest frame that can be sent, in bytes; DefaultMTU if zero.
	// Frames of up to 65536 bytes are received.
	MTU int
	// Polling has the port ask for no interrupts even if there is a function to
	// wake (Port.SetWake): it then looks for frames each millisecond.
	Polling bool `option:"mode" oneof:"interrupt,poll"`
	// Timeout is the time that the peer may take for each step of connecting, and a
	// fourth of what it may take for all; DefaultTimeout if zero.
	Timeout time.Duration
	// MaxMemory bounds the memory in bytes that a client can have a server map;
	// DefaultMaxMemory if zero.
	MaxMemory uint64
}

// Check fails with what New would find wrong with the options, an error that
// wraps ends.ErrOptions.
func (o Options) Check() error { return o.complete() }

// complete sets defaults and checks everything.
func (o *Options) complete() error {
	queues, size := 1, DefaultRing
	if o.Role == Server {
		queues, size = MaxQueues, MaxRing
	}
	o.Queues, o.Ring = cmp.Or(o.Queues, queues), cmp.Or(o.Ring, size)
	o.Buffer, o.MTU = cmp.Or(o.Buffer, DefaultBuffer), cmp.Or(o.MTU, DefaultMTU)
	o.Name = cmp.Or(o.Name, "trapeze")
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.MaxMemory = cmp.Or(o.MaxMemory, DefaultMaxMemory)
	bad := func(field string, value any, want string) error {
		return fmt.Errorf("%w: memif %s %v: want %s", ends.ErrOptions, field, value, want)
	}
	switch {
	case o.Role != Client && o.Role != Server:
		return bad("Role", int(o.Role), "Client or Server")
	case unixsocket.CheckPath(o.Socket) != nil:
		return fmt.Errorf("%w: memif Socket: %w", ends.ErrOptions, unixsocket.CheckPath(o.Socket))
	case len(o.Secret) > MaxSecret || strings.Contains(o.Secret, "\x00"):
		return bad("Secret of bytes", len(o.Secret), fmt.Sprintf("at most %d, none of them zero", MaxSecret))
	case len(o.Name) > MaxName || strings.Contains(o.Name, "\x00"):
		return bad("Name", fmt.Sprintf("%q", o.Name), fmt.Sprintf("at most %d bytes", MaxName))
	case o.Queues < 1 || o.Queues > MaxQueues:
		return bad("Queues", o.Queues, fmt.Sprintf("1..%d", MaxQueues))
	case o.Ring < 2 || o.Ring > MaxRing || bits.OnesCount(uint(o.Ring)) != 1:
		return bad("Ring", o.Ring, fmt.Sprintf("a power of two in 2..%d", MaxRing))
	case o.MTU < datasheet.MinMTU || o.MTU > datasheet.MaxMTU:
		return bad("MTU", o.MTU, fmt.Sprintf("%d..%d", datasheet.MinMTU, datasheet.MaxMTU))
	case o.Timeout < 0:
		return bad("Timeout", o.Timeout, "0 or more")
	case o.Role == Server:
		return nil
	}
	if err := o.layout(o.Queues, o.Queues, o.Ring).Check(); err != nil {
		return fmt.Errorf("%w: memif: %w", ends.ErrOptions, err)
	}
	if parts := (o.MTU + o.Buffer - 1) / o.Buffer; parts > min(o.Ring, ring.MaxParts) {
		return bad("MTU", o.MTU, fmt.Sprintf("%d at most, for %d buffers of %d bytes",
			o.Buffer*min(o.Ring, ring.MaxParts), o.Ring, o.Buffer))
	}
	return nil
}

// layout is a client's arrangement of memory for so many rings.
func (o *Options) layout(c2s, s2c, size int) ring.Layout {
	return ring.Layout{C2S: c2s, S2C: s2c, Log2: log2(size), Capacity: o.Buffer, Apart: o.MTU <= o.Buffer}
}

// log2 returns the binary logarithm of a power of two.
func log2(n int) uint8 { return uint8(bits.TrailingZeros(uint(n))) }
