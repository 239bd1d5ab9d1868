package wire

import (
	"context"
	"net"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
	"github.com/trapeze-nic/trapeze/wire/internal/nic"
	"github.com/trapeze-nic/trapeze/wire/internal/shaper"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// Shared memory between two processes of a machine.
type (
	// SHM is a port of a wire of shared memory.
	SHM = shm.Port
	// SHMOptions are choices of NewSHM. The socket is needed.
	SHMOptions = shm.Options
	// SHMRole says which end makes the socket.
	SHMRole = shm.Role
	// SHMState is where a port is that goes to another process.
	SHMState = shm.State
)

// Roles of a port of shared memory.
const (
	SHMListen  = shm.RoleListen
	SHMConnect = shm.RoleConnect
)

// ErrMemory: memory cannot be shared.
var ErrMemory = shm.ErrMemory

// ErrNotExported: no memory has been exported under this number, or not any more.
var ErrNotExported = shm.ErrNotExported

// NewSHM makes a port of shared memory. It fails with an *Error.
func NewSHM(ctx context.Context, o SHMOptions) (*SHM, error) { return shm.New(ctx, o) }

// AdoptSHM makes a port of shared memory over a connection that is there already; see shm.Adopt.
func AdoptSHM(ctx context.Context, c *net.UnixConn, o SHMOptions) (*SHM, error) {
	return shm.Adopt(ctx, c, o)
}

// ReceiveWhole returns the frame of Receive once all of it has arrived, and nil before. A
// frame that its sender gives up is dropped.
func ReceiveWhole(p Port) []byte {
	parts, _ := p.(engine.Progressive)
	return receiveWhole(p, parts)
}

// Shared memory by memif, which DPDK and VPP speak.
type (
	// Memif is a port of memif.
	Memif = memif.Port
	// MemifOptions are choices of NewMemif. The socket is needed.
	MemifOptions = memif.Options
	// MemifRole says which end has the socket.
	MemifRole = memif.Role
)

// Roles and bounds of ports of memif.
const (
	MemifClient     = memif.Client
	MemifServer     = memif.Server
	MemifDefaultMTU = memif.DefaultMTU
)

var (
	// ErrRefused: the peer has ended the connection and said why.
	ErrRefused = memif.ErrRefused
	// ErrNotWelcome: the peer speaks another version, or wants what is not offered.
	ErrNotWelcome = memif.ErrNotWelcome
)

// NewMemif makes a port of memif. It fails with an *Error.
func NewMemif(o MemifOptions) (*Memif, error) { return memif.New(o) }

// ShaperOptions are choices of NewShaper.
type ShaperOptions = shaper.Options

// NewShaper gives what is sent through inner, which it then owns, a speed: frames leave one
// after the other and arrive later. They are acknowledged on wires that lose nothing too, and
// have their bytes with them. It fails with ErrOptions, and the caller keeps inner.
func NewShaper(inner Port, o ShaperOptions) (Port, error) { return shaper.New(inner, o) }

// A NIC that package ethernet drives.
type (
	// NIC is a port whose wire is that of an Ethernet NIC.
	NIC = nic.Port
	// NICOptions are choices of NewNIC. The address is needed.
	NICOptions = nic.Options
)

// NewNIC opens an Ethernet NIC as a wire. It fails with an *Error.
func NewNIC(ctx context.Context, o NICOptions) (*NIC, error) { return nic.New(ctx, o) }

// IsNICAddress reports whether NewNIC may open an address: that of a PCI function, or one of a scheme
// that a driver has registered.
func IsNICAddress(address string) bool { return nic.IsAddress(address) }
