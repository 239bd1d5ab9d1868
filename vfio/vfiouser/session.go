package vfiouser

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/buserror"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/dmaspace"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// session is one client that has the device. One goroutine takes its messages
// in order, and leaves those that change mappings to memory; release and watch have
// goroutines of their own, too.
type session struct {
	server *Server
	dev    ServedDevice
	conn   *protocol.Conn
	log    *slog.Logger

	negotiated bool
	events     *eventTable
	out        []byte // payload of the reply that is being made
	memory     memory

	gone     chan struct{} // closed when run returns
	released chan struct{} // closed when release returns
	ended    chan struct{} // closed when nothing is left of the client
	watched  sync.WaitGroup
}

// watchInterval is the time between two looks at the client's eventfds, see
// eventTable.unblock.
const watchInterval = time.Second

func newSession(s *Server, conn *protocol.Conn, log *slog.Logger) *session {
	n := &session{server: s, dev: s.dev, conn: conn, log: log, events: &eventTable{},
		memory: newMemory(s.options.Limits),
		gone:   make(chan struct{}), released: make(chan struct{}), ended: make(chan struct{})}
	n.watched.Go(n.watch)
	return n
}

// watch keeps the server from waiting for the client's eventfds.
func (n *session) watch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			n.events.unblock()
		case <-n.ended:
			return
		}
	}
}

// run serves the client until the connection ends, and says why it did.
func (n *session) run() error {
	defer close(n.gone)
	defer n.memory.end()
	n.memory.begin(n)
	// A client that says nothing does not keep the device from others.
	n.conn.SetReceiveDeadline(time.Now().Add(n.server.options.ReplyTimeout))
	for {
		m, err := n.conn.Receive()
		var bad *protocol.Error
		if err != nil && !errors.As(err, &bad) {
			return err
		}
		n.server.stats.messages.add(m.Header.Command)
		if err == nil && n.negotiated && changesMemory(m.Header) {
			n.memory.hand(m)
			continue
		}
		if !overtakes(m.Header) {
			n.memory.idle()
		}
		if err := n.serve(&m, err); err != nil {
			return err
		}
	}
}

// serve carries out a message and answers it. bad, unless nil, says what is wrong with it.
func (n *session) serve(m *protocol.Message, bad error) error {
	var r reply
	err := bad
	if err == nil {
		r, err = n.handle(m)
	}
	if err := passedfd.Close(m.FDs...); err != nil {
		return err
	}
	return n.answer(m.Header, r, err)
}

// reply is the answer to a command that did not fail.
type reply struct {
	payload []byte
	fds     []int
}

// answer replies to the command with header h, which has failed with err unless
// that is nil.
func (n *session) answer(h protocol.Header, r reply, err error) error {
	out := protocol.Header{ID: h.ID, Command: h.Command, Flags: protocol.FlagReply}
	if err != nil {
		n.server.stats.errors.Add(1)
		n.log.Debug("vfio-user: request failed", "command", h.Command, "error", err)
		out.Flags |= protocol.FlagError
		out.Errno = uint32(errnoOf(err))
		r = reply{}
	}
	// A reply without a request is answered too, but not an error: two
	// peers would go on for ever.
	if !h.WantsReply() && (!h.IsReply() || h.Flags&protocol.FlagError != 0) {
		return nil
	}
	return n.conn.Send(out, r.payload, r.fds, time.Now().Add(n.server.options.ReplyTimeout))
}

// errnoOf finds the error number that tells a client of err.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	var fault *buserror.Error
	switch {
	case errors.As(err, &fault):
		return unix.EFAULT
	case errors.Is(err, vfio.ErrIOVAInUse):
		return unix.EEXIST
	case errors.Is(err, dmaspace.ErrFull):
		return unix.ENOSPC
	case errors.Is(err, vfio.ErrDeviceGone), errors.Is(err, vfio.ErrClosed):
		return unix.ENODEV
	case errors.Is(err, vfio.ErrNotSupported):
		return unix.EOPNOTSUPP
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return unix.ETIMEDOUT
	case errors.As(err, &errno) && errno != 0 && errno <= protocol.MaxErrno:
		return errno
	}
	return unix.EINVAL
}

// handler carries out one command.
type handler struct {
	run func(n *session, m *protocol.Message) (reply, error)
	// fds is the number of file descriptors that may come with the command.
	fds int
}

var handlers = map[protocol.Command]handler{
	protocol.CommandVersion:     {(*session).version, 0},
	protocol.CommandDMAMap:      {(*session).dmaMap, 1},
	protocol.CommandDMAUnmap:    {(*session).dmaUnmap, 0},
	protocol.CommandDeviceInfo:  {(*session).deviceInfo, 0},
	protocol.CommandRegionInfo:  {(*session).regionInfo, 0},
	protocol.CommandIRQInfo:     {(*session).irqInfo, 0},
	protocol.CommandSetIRQs:     {(*session).setIRQs, serverMaxFDs},
	protocol.CommandRegionRead:  {(*session).regionRead, 0},
	protocol.CommandRegionWrite: {(*session).regionWrite, 0},
	protocol.CommandDeviceReset: {(*session).deviceReset, 0},
}

// handle carries out a command. Descriptors that it leaves in m are closed.
func (n *session) handle(m *protocol.Message) (reply, error) {
	h := m.Header
	bad := func(errno syscall.Errno, why string) (reply, error) {
		return reply{}, &protocol.Error{Message: "header", Field: "command", Value: uint64(h.Command), Why: why, Errno: errno}
	}
	if h.IsReply() {
		return bad(unix.EINVAL, "it is a reply, and nothing was asked")
	}
	do, ok := handlers[h.Command]
	switch {
	case !n.negotiated && h.Command != protocol.CommandVersion:
		return bad(unix.EINVAL, "VERSION comes first")
	case !ok && h.Command == protocol.CommandDMARead, !ok && h.Command == protocol.CommandDMAWrite:
		return bad(unix.EINVAL, "only a server sends it")
	case !ok && h.Command == protocol.CommandDeviceFeature:
		return bad(unix.EOPNOTSUPP, "this server has no features") // QEMU asks
	case !ok:
		return bad(unix.EINVAL, "this server does not have it") // as libvfio-user says
	case n.negotiated && h.Command == protocol.CommandVersion:
		return bad(unix.EINVAL, "VERSION comes once")
	case len(m.FDs) > do.fds:
		return reply{}, protocol.Invalid(h.Command, "number of file descriptors", len(m.FDs), "want at most %d", do.fds)
	}
	return do.run(n, m)
}

// call calls the device. Should its containment of bus errors have a hole, the
// server lives on.
func (n *session) call(f func() error) error {
	var err error
	if fault := buserror.Catch(func() { err = f() }); fault != nil {
		return fault
	}
	return err
}

func (n *session) version(m *protocol.Message) (reply, error) {
	v, err := protocol.DecodeVersion(m.Payload)
	if err != nil {
		return reply{}, err
	}
	n.conn.SetReceiveDeadline(time.Time{})
	v.Minor = min(v.Minor, protocol.Minor)
	v.Capabilities = protocol.Capabilities{MaxMsgFDs: serverMaxFDs, MaxDataXferSize: serverMaxData,
		MaxDMAMaps: uint32(min(n.server.options.Limits.Ranges, math.MaxUint16)), PageSizes: dmaspace.PageSize}
	n.out, err = v.Append(n.out[:0])
	n.negotiated = err == nil
	return reply{payload: n.out}, err
}

func (n *session) deviceReset(m *protocol.Message) (reply, error) {
	if len(m.Payload) != 0 {
		return reply{}, protocol.Invalid(m.Header.Command, "size", m.Header.Size, "want no payload")
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.server.options.ResetTimeout)
	defer cancel()
	if err := n.call(func() error { return n.dev.Reset(ctx) }); err != nil {
		return reply{}, err
	}
	// The device has disconnected them.
	for _, index := range []int{vfio.IRQINTx, vfio.IRQMSI, vfio.IRQMSIX} {
		n.events.disconnect(index)
	}
	return reply{}, nil
}

// release makes the client leave: it asks, if the client wants to be asked, and
// waits a little.
func (n *session) release() {
	defer close(n.released)
	if n.events.signalRequest() {
		timer := time.NewTimer(n.server.options.ReleaseTimeout)
		defer timer.Stop()
		select {
		case <-n.gone:
		case <-timer.C:
		}
	}
	n.conn.Close()
}

// end gives everything back that the client has brought, when run has returned.
func (n *session) end() {
	report := func(what string, err error) {
		if err != nil {
			n.log.Error("vfio-user: "+what, "error", err)
		}
	}
	for index := range n.dev.Info().IRQs {
		if info, err := n.dev.IRQ(index); err == nil && info.Count > 0 {
			report("interrupts cannot be disconnected", n.call(func() error { return n.dev.DisableIRQs(index) }))
		}
	}
	report("memory cannot be unmapped", n.call(func() error { return n.dev.UnmapWindows(0, math.MaxUint64) }))
	n.memory.space.Clear()
	n.countMemory()
	n.events.close()
	close(n.ended)
	n.watched.Wait()
}
