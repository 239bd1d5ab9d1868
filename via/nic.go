package via

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// NIC is one open network interface controller. All methods of a NIC and of
// what it makes may be called from several goroutines.
type NIC struct {
	d          *driver.NIC
	attributes NICAttributes
	closed     atomic.Bool
	ptag       *Ptag // the default
	eager      bool  // memory is, unless its attributes say how

	mu    sync.Mutex // guards who uses what, see object, and conns
	conns map[*Conn]struct{}
	peers sync.WaitGroup // attempts to connect with peers
	names names
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
	// NoTelemetry has the process not show the NIC to programs beside it, such as trapeze ps. So
	// does the variable TRAPEZE_TELEMETRY=off of the environment, for all NICs.
	NoTelemetry bool
	// SampleLatency k has one send in 2^k of each VI timed from post to completion, for programs
	// that look at the NIC. A completion counts from the program's next send, look or wait at
	// either queue. It is 1 to 20, and 0 for none, or for what the variable TRAPEZE_LATENCY of
	// the environment says.
	SampleLatency int
}

// Waiting says for how long the waits of a NIC spin, let others run and sleep.
type Waiting = driver.Waiting

// Open opens the NIC at a device address, such as "pci:0000:03:00.0" or
// "emu:?wire=loop". Errors: ErrInvalidParameter for a bad address, ErrDevice for
// a device that is not what it should be. Others, such as of a file that may not be
// opened, have no code: their cause says what is wrong.
func Open(ctx context.Context, address string, o Options) (*NIC, error) {
	d, err := driver.Open(ctx, address, driver.Options{Logger: o.Logger, NoTelemetry: o.NoTelemetry, SampleLatency: o.SampleLatency})
	if err != nil {
		return nil, err
	}
	return newNIC(ctx, d, o)
}

// OpenDevice opens the NIC behind a device, such as one of emulator.Pair. It takes
// ownership: the device is closed with the NIC, and also if OpenDevice fails.
func OpenDevice(ctx context.Context, device vfio.Device, o Options) (*NIC, error) {
	d, err := driver.New(ctx, device, driver.Options{Logger: o.Logger, NoTelemetry: o.NoTelemetry, SampleLatency: o.SampleLatency})
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
	n := &NIC{d: d, attributes: attributes(d), eager: o.Eager}
	d.SetWaiting(o.Waiting)
	n.OnError(o.OnError)
	var err error
	if n.ptag, err = d.CreatePtag(ctx); err == nil && o.Policy != (Policy{}) {
		err = d.SetPolicy(o.Policy)
	}
	d.SetDefaults(n.ptag, o.Eager)
	if err != nil {
		// What matters to the caller is why the NIC cannot be used.
		_ = n.Close()
		return nil, err
	}
	return n, nil
}

// providerVersion is 0.1.0.
const providerVersion = 1 << 8

// attributes returns the NIC's own description.
func attributes(d *driver.NIC) NICAttributes {
	id := d.Identity()
	const reliable = ReliableDelivery | ReliableReception
	a := NICAttributes{
		Name:             d.Address(),
		Backend:          d.Backend(),
		HardwareVersion:  id.DeviceVersion,
		Address:          id.MAC,
		MTU:              id.MTU,
		MaxTransfer:      id.MaxTransfer,
		MaxSegments:      id.MaxSegments,
		MaxDiscriminator: MaxDiscriminator,
		MaxVIs:           int(id.MaxEndpoints) - 1, // endpoint 0 is reserved
		MaxCQs:           int(id.MaxCQs),
		MaxRegions:       int(id.MaxRegions),
		MaxPtags:         int(id.MaxPtags),
		MaxDescriptors:   id.MaxQueueDepth,
		MaxCQEntries:     id.MaxCQEntries,
		MaxInline:        id.MaxSegments * datasheet.DataSegmentSize,
		Reliability:      Unreliable | reliable,
		RDMAWrite:        Unreliable | reliable,
		RDMARead:         reliable, // VIA has no RDMA read on unreliable VIs
		ThreadSafe:       true,
	}
	a.ProviderVersion = providerVersion
	a.MaxRegistered, a.MaxRegion = d.BusSpace()
	return a
}

// Name is the address by which the device was opened.
func (n *NIC) Name() string { return n.attributes.Name }

// Driver is the driver's NIC under this one, for what this package does not show, such as
// counters and device memory. It ends with this NIC: do not close it.
func (n *NIC) Driver() *driver.NIC { return n.d }

// Ptag is the protection tag of what is made without another one.
func (n *NIC) Ptag() *Ptag { return n.ptag }

// Stats has the counters of a NIC, with the name, help and unit of each in its tags.
type Stats = driver.Stats

// Stats reads the NIC's counters. It fails with ErrNotSupported if the NIC has none.
func (n *NIC) Stats() (Stats, error) { return n.d.Stats() }

// CreatePtag makes a new protection tag. It fails with ErrResource if there are
// no more.
func (n *NIC) CreatePtag(ctx context.Context) (*Ptag, error) { return n.d.CreatePtag(ctx) }

// Alloc returns size bytes of zeroed memory that the NIC can reach, registered: see the driver's.
func (n *NIC) Alloc(ctx context.Context, size int, a MemoryAttributes) (*Memory, error) {
	return n.d.Alloc(ctx, size, a)
}

// Register registers memory that is there already: see the driver's.
func (n *NIC) Register(ctx context.Context, b []byte, a MemoryAttributes) (*Memory, error) {
	return n.d.Register(ctx, b, a)
}

// NewCache makes a cache of registrations: see the driver's.
func (n *NIC) NewCache(o CacheOptions) (*RegistrationCache, error) { return n.d.NewCache(o) }

// Query returns the attributes and limits of the NIC.
func (n *NIC) Query() NICAttributes { return n.attributes }

// Poll makes progress on a NIC that runs in this process and only when it is
// called, and reports whether there was any. The calls of the data path do so
// too while they find nothing; a program that neither posts nor waits for a
// while calls Poll so that its NIC goes on answering others. On other NICs it
// only looks for asynchronous errors.
func (n *NIC) Poll() bool { return n.d.Poll() }

// Close frees the NIC and everything made with it, in any state: connections
// are broken, waits end with ErrClosed, registered memory is unmapped. Memory
// and descriptors must not be touched once Close has been called. Closing again waits
// for that and does nothing.
func (n *NIC) Close() error {
	n.mu.Lock()
	before := n.closed.Swap(true) // from here on no attempt to connect with a peer begins
	n.mu.Unlock()
	if before {
		return n.d.Close() // waits for the first
	}
	n.mu.Lock()
	conns := slices.Collect(maps.Keys(n.conns))
	n.mu.Unlock()
	for _, c := range conns {
		c.abandon()
	}
	err := n.d.Close()
	n.peers.Wait()
	return err
}

// keep has Close end the connection too.
func (n *NIC) keep(c *Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns == nil {
		n.conns = map[*Conn]struct{}{}
	}
	n.conns[c] = struct{}{}
}

func (n *NIC) forget(c *Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// lookup finds a VI by its number; nil if there is none.
func (n *NIC) lookup(number uint32) *VI {
	d := n.d.VI(number)
	if d == nil {
		return nil
	}
	v, _ := d.User().(*VI)
	return v
}
