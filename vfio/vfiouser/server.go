package vfiouser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/dmaspace"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// ServerOptions are choices of NewServer. The zero value is good.
type ServerOptions struct {
	// Logger hears of clients that come, go and do wrong; nil: slog.Default.
	Logger *slog.Logger
	// Limits of a client's DMA mappings; fields that are zero are those of
	// dmaspace.DefaultLimits.
	Limits dmaspace.Limits
	// ReplyTimeout is the time that a client may take to accept a reply; zero: 10 s.
	ReplyTimeout time.Duration
	// ReleaseTimeout is the time that a client that has asked to be told (the REQ
	// interrupt) may take to leave when the server stops; zero: 1 s.
	ReleaseTimeout time.Duration
	// BusyTimeout is the time that a second client waits for the first one to leave
	// before it is refused; zero: 1 s.
	BusyTimeout time.Duration
	// ResetTimeout is the time that the device may take for a reset; zero: 5 s.
	ResetTimeout time.Duration
}

func (o *ServerOptions) complete() {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	limits := dmaspace.DefaultLimits()
	o.Limits.Ranges = cmp.Or(o.Limits.Ranges, limits.Ranges)
	o.Limits.Files = cmp.Or(o.Limits.Files, limits.Files)
	o.Limits.Bytes = cmp.Or(o.Limits.Bytes, limits.Bytes)
	o.ReplyTimeout = cmp.Or(o.ReplyTimeout, 10*time.Second)
	o.ReleaseTimeout = cmp.Or(o.ReleaseTimeout, time.Second)
	o.BusyTimeout = cmp.Or(o.BusyTimeout, time.Second)
	o.ResetTimeout = cmp.Or(o.ResetTimeout, 5*time.Second)
}

// What the server takes and tells clients about.
const (
	serverMaxFDs  = 16
	serverMaxData = 1 << 20
	// maxPayload is that of a REGION_WRITE.
	serverMaxPayload = protocol.RegionAccessSize + serverMaxData
	// maxWaiting is the number of clients that may wait for the device.
	maxWaiting = 16
)

// Server puts one device behind sockets, for one client at a time.
type Server struct {
	dev     ServedDevice
	options ServerOptions
	stats   serverCounters

	// turn is held by the session that has the device.
	turn chan struct{}
	// waiting is held by each connection that has no session yet.
	waiting chan struct{}
	// used: the device is not as new; of who holds turn.
	used bool
}

// NewServer makes a server for dev, which stays the caller's. The device must
// not be used otherwise while the server runs, and is expected to be as new. It
// fails if dev is no PCI device.
func NewServer(dev ServedDevice, o ServerOptions) (*Server, error) {
	o.complete()
	info := dev.Info()
	if info.Regions <= vfio.RegionConfig || info.Regions > maxIndexes || info.IRQs <= 0 || info.IRQs > maxIndexes {
		return nil, &vfio.Error{Op: "serve", Device: info.Address,
			Err:  fmt.Errorf("%w: %d regions, %d interrupt indexes", vfio.ErrNotSupported, info.Regions, info.IRQs),
			Hint: fmt.Sprintf("a PCI device has regions 0 to %d, and interrupts; at most %d of each", vfio.RegionConfig, maxIndexes)}
	}
	return &Server{dev: dev, options: o, turn: make(chan struct{}, 1), waiting: make(chan struct{}, maxWaiting)}, nil
}

// maxIndexes is more regions and interrupt indexes than any PCI device has.
const maxIndexes = 32

// Serve is NewServer and Server.Serve.
func Serve(ctx context.Context, l net.Listener, dev ServedDevice, o ServerOptions) error {
	s, err := NewServer(dev, o)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return s.Serve(ctx, l)
}

// Serve accepts clients until ctx ends, which is no error, or the listener
// fails. The listener comes from Listen, or is a *net.UnixListener. Serve closes
// it, and when it returns no client is left.
//
// One client has the device at a time. Another waits, not for long, and is then
// refused with EBUSY. When a client has gone, however it went, its memory and
// file descriptors are given back and the device is made as new. Until then a
// client can hold the device, waste the processor time of the device, and have
// it use as much memory as it maps; it cannot read or write more than it has
// mapped, crash the server or have it leak.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	l, ok := listener.(*unixsocket.Listener)
	if !ok {
		stock, ok := listener.(*net.UnixListener)
		if !ok {
			return errors.Join(&vfio.Error{Op: "accept vfio-user clients for", Device: s.dev.Info().Address,
				Err: fmt.Errorf("%w: a listener of type %T", vfio.ErrNotSupported, listener)}, listener.Close())
		}
		l = unixsocket.Own(stock)
	}
	ctx, cancel := context.WithCancel(ctx)
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		// What cannot be removed matters to the next server there.
		_ = l.Close()
	})
	var clients sync.WaitGroup
	err := l.Each(ctx, func(c *net.UnixConn) { clients.Go(func() { s.ServeConn(ctx, c) }) },
		func(err error) { s.options.Logger.Warn("vfio-user: cannot accept a client", "error", err) })
	cancel()
	clients.Wait()
	<-closed
	if err != nil {
		return &vfio.Error{Op: "accept vfio-user clients for", Device: s.dev.Info().Address, Err: err}
	}
	return nil
}

// ServeConn serves one client, whose connection it closes. It returns when the
// client has gone or ctx has ended.
func (s *Server) ServeConn(ctx context.Context, c *net.UnixConn) {
	conn := protocol.NewConn(c, serverMaxPayload, serverMaxFDs)
	defer conn.Close()
	select {
	case s.waiting <- struct{}{}:
	default:
		s.stats.refused.Add(1)
		return
	}
	got := s.take(ctx)
	<-s.waiting
	switch {
	case got:
		defer func() { <-s.turn }()
		s.session(ctx, c, conn)
	case ctx.Err() == nil:
		s.refuse(conn, unix.EBUSY)
	}
}

// take waits for the device.
func (s *Server) take(ctx context.Context) bool {
	timer := time.NewTimer(s.options.BusyTimeout)
	defer timer.Stop()
	select {
	case s.turn <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// refuse answers a client's first message with an error.
func (s *Server) refuse(conn *protocol.Conn, errno unix.Errno) {
	s.stats.refused.Add(1)
	deadline := time.Now().Add(s.options.BusyTimeout)
	// If any of this fails the client learns it from the connection's end.
	conn.SetReceiveDeadline(deadline)
	m, err := conn.Receive()
	passedfd.Close(m.FDs...)
	if err == nil && m.Header.WantsReply() {
		_ = conn.Send(protocol.Header{ID: m.Header.ID, Command: m.Header.Command,
			Flags: protocol.FlagReply | protocol.FlagError, Errno: uint32(errno)}, nil, nil, deadline)
	}
}

// session serves the client that has got its turn.
func (s *Server) session(ctx context.Context, c *net.UnixConn, conn *protocol.Conn) {
	log := s.options.Logger.With("device", s.dev.Info().Address, "client", peer(c))
	if err := s.renew(); err != nil {
		log.Error("vfio-user: device cannot be reset for a client", "error", err)
		s.refuse(conn, unix.EIO)
		return
	}
	s.stats.clients.Add(1)
	log.Info("vfio-user: client connected")
	s.used = true
	n := newSession(s, conn, log)
	stop := context.AfterFunc(ctx, n.release)
	err := n.run()
	if !stop() {
		<-n.released
	}
	n.end()
	if err := s.renew(); err != nil {
		log.Error("vfio-user: device cannot be reset after a client", "error", err)
	}
	log.Info("vfio-user: client gone", "reason", err)
}

// renew makes the device as new if it is not.
func (s *Server) renew() error {
	if !s.used {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.options.ResetTimeout)
	defer cancel()
	if err := s.dev.Renew(ctx); err != nil {
		return err
	}
	s.used = false
	return nil
}

// peer names the process at the other end.
func peer(c *net.UnixConn) string {
	cred, err := unixsocket.Peer(c)
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("pid %d uid %d", cred.Pid, cred.Uid)
}
