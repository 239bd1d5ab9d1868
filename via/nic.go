package via

import (
	"context"
	"log/slog"
	"sync"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/vfio"
)

// NIC is one open network interface controller. All methods of a NIC and of
// what it makes may be called from several goroutines. It is the driver's NIC together with its
// Conns and the names that it knows:
//
//	CreateVI, CreateCQ, CreateReceiveQueue        what messages go by
//	Alloc, Register, NewCache, CreatePtag, Ptag   memory, and who may touch it
//	ConnectWait                                   requests to be connected
//	Query, Stats, Counters, Health, Report        what the NIC is, and what it has done
//	Poll                                          progress of a NIC that runs in the calls of its program
//	SetPolicy, LoadProgram, EnableDMALog          policies, control programs, the log of transfers
type NIC struct {
	*driver.NIC
	names names

	mu    sync.Mutex
	conns map[*Conn]struct{} // nil once the NIC is being closed
}

// Options are choices of Open, OpenDevice and New. The zero value is good.
type Options struct {
	// Logger takes what goes wrong in the background, and asynchronous errors for which
	// there is no handler; nil is slog.Default. New does not look at it.
	Logger *slog.Logger
	// OnError is the handler of asynchronous errors from the start, see NIC.OnError.
	OnError func(AsyncError)
	// Policy is the delivery policy, see NIC.SetPolicy; its zero value is the one that the device
	// was configured with. A NIC that cannot have it is not opened.
	Policy Policy
	// Waiting says how the calls of the NIC that wait go on while nothing happens. By
	// default they spin for some microseconds and soon sleep. Spinning longer answers
	// sooner, and takes a processor for as long.
	Waiting Waiting
	// Eager makes all memory eager that the NIC registers without EagerAttributes of its
	// own, the descriptors that it makes and the tokens of its VIs: at the post, as far as
	// the NIC has room, and ordinary from there on. Programs need no change.
	Eager bool
	// NoTelemetry hides the NIC from programs beside this one, such as trapeze ps. So
	// does the variable TRAPEZE_TELEMETRY=off of the environment, for all NICs.
	NoTelemetry bool
	// SampleLatency k has one send in 2^k of each VI timed from post to completion, for programs
	// that look at the NIC. A completion counts from the program's next send, look or wait at
	// either queue. It is 1 to 20, and 0 for none, or for what the variable TRAPEZE_LATENCY of
	// the environment says.
	SampleLatency int
}

func (o Options) driver() driver.Options {
	return driver.Options{Logger: o.Logger, NoTelemetry: o.NoTelemetry, SampleLatency: o.SampleLatency}
}

// Waiting says for how long the waits of a NIC spin, let others run and sleep.
type Waiting = driver.Waiting

// Open opens the NIC at a device address, such as "pci:0000:03:00.0" or
// "emu:?wire=loop". Errors: ErrInvalidParameter for a bad address, ErrDevice for
// a device that is not what it should be. Others, such as of a file that may not be
// opened, have no code: their cause says what is wrong.
func Open(ctx context.Context, address string, o Options) (*NIC, error) {
	d, err := driver.Open(ctx, address, o.driver())
	if err != nil {
		return nil, err
	}
	return newNIC(ctx, d, o)
}

// OpenDevice opens the NIC behind a device, such as one of emulator.Pair. It takes
// ownership: the device is closed with the NIC, and also if OpenDevice fails.
func OpenDevice(ctx context.Context, device vfio.Device, o Options) (*NIC, error) {
	d, err := driver.New(ctx, device, o.driver())
	if err != nil {
		return nil, err
	}
	return newNIC(ctx, d, o)
}

// New makes a NIC of one that the driver has opened, for programs that also look at
// what this package does not show: counters, health, SRAM. It takes ownership: the
// driver's NIC is closed with this one, and also if New fails.
func New(ctx context.Context, d *driver.NIC, o Options) (*NIC, error) {
	if d == nil {
		return nil, &Error{Op: "open", Code: ErrInvalidParameter, Hint: "the driver's NIC must not be nil"}
	}
	return newNIC(ctx, d, o)
}

func newNIC(ctx context.Context, d *driver.NIC, o Options) (*NIC, error) {
	n := &NIC{NIC: d, conns: map[*Conn]struct{}{}}
	d.SetWaiting(o.Waiting)
	n.OnError(o.OnError)
	ptag, err := d.CreatePtag(ctx)
	d.SetDefaults(ptag, o.Eager)
	if err == nil && o.Policy != (Policy{}) {
		err = d.SetPolicy(o.Policy)
	}
	if err != nil {
		// What matters to the caller is why the NIC cannot be used.
		_ = n.Close()
		return nil, err
	}
	return n, nil
}

// Close frees the NIC and everything made with it, in any state: connections
// are broken, waits end with ErrClosed, registered memory is unmapped. Memory
// and descriptors must not be touched once Close has been called. Closing again waits
// for that and does nothing.
func (n *NIC) Close() error {
	n.mu.Lock()
	conns := n.conns
	n.conns = nil
	n.mu.Unlock()
	for c := range conns {
		c.abandon()
	}
	return n.NIC.Close()
}

// keep has Close end the connection too. It fails once that has begun.
func (n *NIC) keep(c *Conn) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns == nil {
		return c.closedError()
	}
	n.conns[c] = struct{}{}
	return nil
}

func (n *NIC) forget(c *Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}
