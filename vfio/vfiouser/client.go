package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// ErrOtherDevice: a server has been found again, but its device is another.
var ErrOtherDevice = errors.New("server has a different device")

// defaultTimeout is the time that a server may take to answer a request.
const defaultTimeout = 5 * time.Second

// ClientOptions are choices of Open. The zero value is good.
type ClientOptions struct {
	// Timeout is the time that the server may take to answer a request; zero:
	// 5 s. Then it is lost: no other request waits for it.
	Timeout time.Duration `option:"timeout" range:"1ms..10m"`
	// MapUnsealed has regions mapped whose file the server could cut off, because
	// it cannot be sealed against that (F_SEAL_SHRINK, memfd_create(2)); without it
	// they are accessed by messages, which is slow. It is for servers that are
	// trusted: touching what has been cut off is a bus error, which ends the
	// program.
	MapUnsealed bool `option:"unsealed" oneof:"off,on"`
}

func init() { vfio.Register("vfio-user", openAddress) }

// openAddress opens "vfio-user:PATH?timeout=5s&unsealed=on".
func openAddress(ctx context.Context, a vfio.Address) (vfio.Device, error) {
	var o ClientOptions
	if a.Path == "" {
		return nil, a.Refuse(errors.New("there is no path"), "use vfio-user:/path/of/the.sock")
	}
	if err := a.Decode(&o); err != nil {
		return nil, err
	}
	return open(ctx, a.String(), a.Path, o)
}

// client is a device in another process.
type client struct {
	address string
	path    string // empty: cannot connect again
	timeout time.Duration
	// unsealed is ClientOptions.MapUnsealed.
	unsealed bool
	stats    clientCounters

	closed atomic.Bool
	life   context.Context // ends with Close
	end    context.CancelFunc
	link   atomic.Pointer[link]

	// mu is held while the device is set up, across messages.
	mu       sync.Mutex
	device   atomic.Pointer[description]
	mappings map[*mappedPart]struct{}

	dma    dmaTable
	events eventTable
}

var (
	_ vfio.Device = (*client)(nil)
	_ vfio.Remote = (*client)(nil)
)

// Open connects to the server that listens at path. Errors are *vfio.Error. The device is a
// [vfio.Remote], and has a method Stats that returns [ClientStats]. What is
// mapped works without the server's help: a doorbell is a store to shared
// memory, an interrupt an eventfd that the server writes to.
//
// When the server is lost, or has left one request without an answer for too long,
// every request fails with vfio.ErrDeviceGone. All connected eventfds are then
// signalled, so that no goroutine sleeps on. Reset then connects
// again, to the same server or its successor: DMA mappings are made anew, and
// mapped regions come back at their addresses. What the device held is lost.
func Open(ctx context.Context, path string, o ClientOptions) (vfio.Device, error) {
	return open(ctx, "vfio-user:"+path, path, o)
}

func open(ctx context.Context, address, path string, o ClientOptions) (vfio.Device, error) {
	if err := unixsocket.CheckPath(path); err != nil {
		return nil, &vfio.Error{Op: "open", Device: address, Err: fmt.Errorf("%w: %w", vfio.ErrBadAddress, err), Hint: "use a shorter path, or a link to its folder"}
	}
	d := newDevice(address, o)
	d.path = path
	c, err := d.dial(ctx)
	if err == nil {
		err = d.begin(ctx, c)
	}
	if err != nil {
		d.end()
		return nil, d.failHint("open", err, connectHint(err))
	}
	return d, nil
}

// New makes a device of a connection to a server, which it owns from then on.
// If it is lost Reset cannot connect again. Errors are *vfio.Error.
func New(ctx context.Context, c *net.UnixConn, o ClientOptions) (vfio.Device, error) {
	d := newDevice("vfio-user:", o)
	if err := d.begin(ctx, c); err != nil {
		d.end()
		return nil, d.failHint("open", err, connectHint(err))
	}
	return d, nil
}

func newDevice(address string, o ClientOptions) *client {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	d := &client{address: address, timeout: o.Timeout, unsealed: o.MapUnsealed, mappings: map[*mappedPart]struct{}{}}
	d.life, d.end = context.WithCancel(context.Background())
	d.device.Store(&description{})
	return d
}

// begin takes a connection into use.
func (d *client) begin(ctx context.Context, c *net.UnixConn) error {
	l, found, err := d.greet(ctx, c)
	if err != nil {
		return err
	}
	d.link.Store(l)
	d.device.Store(found)
	return nil
}

// dial connects to the server.
func (d *client) dial(ctx context.Context) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", d.path)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// connectHint says what can be done about a server that cannot be reached.
func connectHint(err error) string {
	var errno unix.Errno
	errors.As(err, &errno)
	return map[unix.Errno]string{
		unix.ENOENT:       "start the server first: there is no such socket",
		unix.ECONNREFUSED: "no server listens there, or it is no socket: start the server, or correct the path",
		unix.EPROTOTYPE:   "a program of another kind listens there: correct the path",
		unix.EACCES:       "the socket's permissions do not allow this user to write",
		unix.EBUSY:        "another client has the device",
	}[errno]
}

func (d *client) Info() vfio.Info {
	info := d.device.Load().info
	info.Address, info.Backend = d.address, "vfio-user"
	return info
}

// ClientStats counts the work of a client so far.
type ClientStats struct {
	// Messages that have been sent to the server.
	Messages Messages
	// Requests of the server.
	Requests uint64
}

// Stats returns what the client has done so far. It may be called at any time.
func (d *client) Stats() ClientStats {
	return ClientStats{Messages: d.stats.sent.snapshot(), Requests: d.stats.requests.Load()}
}

func (d *client) Lost() <-chan struct{} { return d.link.Load().gone }

func (d *client) GiveUp(why error) { d.link.Load().fail(why) }

func (d *client) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.end()
	d.link.Load().fail(vfio.ErrClosed) // ends what waits for a reply
	d.mu.Lock()
	defer d.mu.Unlock()
	// Reset may have made a new one.
	l := d.link.Load()
	l.fail(vfio.ErrClosed)
	<-l.done
	d.device.Load().close()
	d.events.close()
	d.dma.remove(0, math.MaxUint64)
	return nil
}

// ask is link.ask on the present connection.
func (d *client) ask(ctx context.Context, c protocol.Command, payload []byte, fds ...int) ([]byte, error) {
	return d.link.Load().ask(ctx, c, payload, fds...)
}

func (d *client) fail(op string, err error) error { return d.failHint(op, err, "") }

func (d *client) failHint(op string, err error, hint string) error {
	if d.closed.Load() {
		err, hint = vfio.ErrClosed, ""
	}
	if hint == "" && d.path != "" && errors.Is(err, vfio.ErrDeviceGone) {
		hint = "start the server again and reset the device"
	}
	return &vfio.Error{Op: op, Device: d.address, Err: err, Hint: hint}
}
