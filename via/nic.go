package via

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/eventlog"
)

// NIC is one open network interface controller. All methods of a NIC and of
// what it makes may be called from several goroutines.
type NIC struct {
	name       string
	provider   Provider
	attributes NICAttributes
	logger     *slog.Logger
	lines      eventlog.Limiter
	closed     atomic.Bool
	ptag       *Ptag // the default

	// vis finds a VI by its number without a lock. The table is replaced when
	// it grows; mu guards all changes.
	vis atomic.Pointer[[]atomic.Pointer[VI]]

	mu sync.Mutex
	// cqs finds a CQ by its number, for asynchronous errors.
	cqs map[uint32]*CQ
}

// Option changes how a NIC is opened.
type Option func(*settings)

type settings struct {
	logger  *slog.Logger
	handler func(AsyncError)
	policy  *Policy
}

// WithLogger has asynchronous errors for which there is no handler logged
// through l instead of slog.Default.
func WithLogger(l *slog.Logger) Option {
	return func(s *settings) { s.logger = l }
}

// WithErrorHandler sets the handler of asynchronous errors from the start, see
// NIC.OnError.
func WithErrorHandler(f func(AsyncError)) Option {
	return func(s *settings) { s.handler = f }
}

func collect(opts []Option) settings {
	var s settings
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	return s
}

// New makes a NIC of a provider. It takes ownership: the provider is closed
// with the NIC, and also if New fails.
func New(ctx context.Context, p Provider, opts ...Option) (*NIC, error) {
	const op = "open"
	if p == nil {
		return nil, &Error{Op: op, Code: ErrInvalidParameter, Hint: "the provider is nil"}
	}
	s := collect(opts)
	a := p.Attributes()
	n := &NIC{name: a.Name, provider: p, attributes: a, logger: s.logger,
		cqs: map[uint32]*CQ{}}
	n.vis.Store(new([]atomic.Pointer[VI]))
	n.OnError(s.handler)
	ptag, err := n.CreatePtag(ctx)
	if err != nil {
		// What matters to the caller is why the NIC cannot be used.
		_ = n.Close()
		return nil, err
	}
	n.ptag = ptag
	if s.policy != nil {
		if err := n.SetPolicy(*s.policy); err != nil {
			_ = n.Close()
			return nil, err
		}
	}
	return n, nil
}

// Name is the address by which the device was opened.
func (n *NIC) Name() string { return n.name }

// Query returns the attributes and limits of the NIC.
func (n *NIC) Query() NICAttributes { return n.attributes }

// Poll makes progress on a NIC that runs in this process and only when it is
// called, and reports whether there was any. The calls of the data path do so
// too while they find nothing; a program that neither posts nor waits for a
// while calls Poll so that its NIC goes on answering others. On other NICs it
// only looks for asynchronous errors.
func (n *NIC) Poll() bool {
	if n.closed.Load() {
		return false
	}
	return n.provider.Poll()
}

// Close frees the NIC and everything made with it, in any state: connections
// are broken, waits end with ErrClosed, registered memory is unmapped. Memory
// and descriptors must not be touched once Close has been called. Closing again
// fails with ErrClosed and does nothing.
func (n *NIC) Close() error {
	const op = "close"
	if n.closed.Swap(true) {
		return n.refuse(op, ErrClosed, "", "")
	}
	err := n.provider.Close()
	n.lines.Close()
	return n.fail(op, err)
}

// lookup finds a VI by number; nil if there is none.
func (n *NIC) lookup(number uint32) *VI {
	table := *n.vis.Load()
	if uint64(number) >= uint64(len(table)) {
		return nil
	}
	return table[number].Load()
}

// enter puts v into the table of VIs.
func (n *NIC) enter(number uint32, v *VI) {
	n.mu.Lock()
	defer n.mu.Unlock()
	table := *n.vis.Load()
	if int(number) >= len(table) {
		grown := make([]atomic.Pointer[VI], max(2*len(table), int(number)+1))
		for i := range table {
			grown[i].Store(table[i].Load())
		}
		n.vis.Store(&grown)
		table = grown
	}
	table[number].Store(v)
}

// remove takes v out of the table, unless its number has a new owner already.
func (n *NIC) remove(v *VI) {
	n.mu.Lock()
	defer n.mu.Unlock()
	(*n.vis.Load())[v.p.Number()].CompareAndSwap(v, nil)
}
