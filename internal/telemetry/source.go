package telemetry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Source is a NIC that this process has open.
type Source struct {
	// Address is that by which the NIC was opened.
	Address string
	// Port answers tools for Ethernet ports. Its errors are those of the device.
	Port func() (Port, error)
	// Stats returns a struct that Values takes. Its errors are those of the device.
	Stats func() (any, error)
	// Commands are those of the NIC, below /trapeze/. Sources of one process may have different ones.
	Commands []Command
}

// Command is one of a source.
type Command struct {
	// Name is the last word of the command, Help a sentence.
	Name, Help string
	// Needs counts the parameters that it needs; it takes one more.
	Needs int
	// Run answers with what is written as JSON, or with a *Loan. What parameters it is not given
	// are zero.
	Run func(ctx context.Context, parameters []uint64) (any, error)
}

// Loan is an answer with memory that a client is lent: until it asks for another, or its
// connection ends.
type Loan struct {
	// Answer is written as JSON.
	Answer any
	// FD is the descriptor of the memory, which remains the lender's.
	FD int
	// End is called once, when the client has no use of the memory any more.
	End func()
}

// Port is a NIC as DPDK's tools know one.
type Port struct {
	Name, MAC string
	MTU       int
	Queues    int
	LinkUp    bool
	// Packets and bytes of payload in both directions, packets for which there was no receive
	// descriptor, bad ones, and those that could not be sent.
	Received, ReceivedBytes, Sent, SentBytes, Missed, ReceiveErrors, SendErrors uint64
}

// Options are choices of Register.
type Options struct {
	// NoTelemetry keeps the NIC from making this process serve a socket.
	NoTelemetry bool
	// Logger is told why this process has no socket, at level warn; nil is slog.Default.
	Logger *slog.Logger
}

// process has the sources of this process.
var process registry

// registry has the sources of a process, and its server while there are any.
type registry struct {
	mu sync.RWMutex // guards sources
	// sources are in the order of their port numbers; nil where one has left.
	sources []*Source

	change sync.Mutex // guards what follows, and is taken before mu
	loud   int        // sources that want a server
	server *server
}

// Register shows a source to those who ask this process. Unless it forbids that, or the variable
// TRAPEZE_TELEMETRY is off, the process serves a socket from the first source to the last. No
// socket is no error. Leave, which is called once, returns when the socket is closed if it was
// the last source.
func Register(s *Source, o Options) (leave func()) { return process.register(s, o) }

func (r *registry) register(s *Source, o Options) (leave func()) {
	r.mu.Lock()
	number := slices.Index(r.sources, nil)
	if number < 0 {
		number = len(r.sources)
		r.sources = append(r.sources, nil)
	}
	r.sources[number] = s
	r.mu.Unlock()
	loud := !o.NoTelemetry
	if loud {
		r.change.Lock()
		if r.loud++; r.loud == 1 {
			r.start(cmp.Or(o.Logger, slog.Default()))
		}
		r.change.Unlock()
	}
	return func() {
		r.mu.Lock()
		r.sources[number] = nil
		r.mu.Unlock()
		if !loud {
			return
		}
		r.change.Lock()
		defer r.change.Unlock()
		if r.loud--; r.loud == 0 && r.server != nil {
			r.server.close()
			r.server = nil
		}
	}
}

// start begins to serve, if that is wanted and possible. change is held.
func (r *registry) start(log *slog.Logger) {
	prefix, on := Prefix()
	if !on {
		return
	}
	s, err := listen(r, prefix)
	if errors.Is(err, unix.EMFILE) {
		return // the program needs files itself, and says which it lacks
	}
	if err != nil {
		log.Warn("other programs do not see the NICs of this one: no telemetry socket", "err", err, "hint", Variable+"=off ends this warning")
		return
	}
	r.server = s
}

// source returns the source with a port number; nil if there is none.
func (r *registry) source(number uint64) *Source {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if number >= uint64(len(r.sources)) {
		return nil
	}
	return r.sources[number]
}

// numbers are the port numbers in use.
func (r *registry) numbers() []int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := []int{}
	for i, s := range r.sources {
		if s != nil {
			list = append(list, i)
		}
	}
	return list
}
