package ring

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// Ring is one end of a connection of rings. Its methods may be called from several
// goroutines; an Entry is for one at a time.
type Ring struct {
	nic     *via.NIC
	d       *driver.Ring
	options Options
	shadow  bool
	frames  *via.Memory // that the ring has attached itself; may be nil
	remote  driver.Remote
	local   via.Address
	address via.Address // of the other end

	send side
	recv side

	sendable, receivable memories

	closed atomic.Bool
	lost   atomic.Pointer[error] // why nothing can be sent or received any more
}

// parting bounds how long Close waits for the other side to take what was sent, and for the
// NIC to end the connection.
const parting = 2 * time.Second

// newRing makes a ring that is not connected, with receives posted.
func newRing(ctx context.Context, nic *via.NIC, o Options) (*Ring, error) {
	d, err := nic.Driver().CreateRing(ctx, o.driver())
	if err != nil {
		return nil, err
	}
	r := &Ring{nic: nic, d: d, options: o}
	a := d.Attributes()
	r.options.Entries = a.SendDepth
	if err := r.equip(ctx); err != nil {
		return nil, errors.Join(err, r.abandon())
	}
	return r, nil
}

// equip makes entries and frames, and posts the receives.
func (r *Ring) equip(ctx context.Context) (err error) {
	if r.shadow, err = r.chooseAccess(); err != nil {
		return err
	}
	size, n := r.options.FrameSize, r.options.Entries
	if size > 0 {
		if r.frames, err = r.nic.Alloc(ctx, size*n, via.MemoryAttributes{Ptag: r.options.Ptag}); err != nil {
			return err
		}
	}
	r.send.init(r, n, r.d.SendMessage)
	r.recv.init(r, n, r.d.RecvMessage)
	for i := range r.recv.entries {
		e := &r.recv.entries[i]
		e.receive = true
		if size > 0 {
			e.frame = Frame{Memory: r.frames, Offset: i * size, Length: size}
			if e.payload, err = r.segment("create ring", e.frame, true); err != nil {
				return err
			}
		}
		if err := r.d.PutRecv(uint32(i), e.payload); err != nil {
			return err
		}
	}
	r.recv.next = 0
	return r.d.PostRecv(n)
}

// Entries is how many entries each ring has, and MaxPayload the largest payload in bytes.
func (r *Ring) Entries() int { return r.options.Entries }

// MaxPayload is the largest payload in bytes that a message can have.
func (r *Ring) MaxPayload() int { return r.options.MaxPayload }

// Shadowed reports whether messages are built and read in host memory, and not where they
// are in the NIC's.
func (r *Ring) Shadowed() bool { return r.shadow }

// NIC is the NIC that the ring is of.
func (r *Ring) NIC() *via.NIC { return r.nic }

// Driver is the driver's ring under this one, for what this package does not show, such as
// the state of the connection. Its entries belong to this ring.
func (r *Ring) Driver() *driver.Ring { return r.d }

// Remote describes the other end.
func (r *Ring) Remote() via.Remote { return r.remote }

// LocalAddress is this end's address.
func (r *Ring) LocalAddress() via.Address { return r.local }

// RemoteAddress is the other end's address.
func (r *Ring) RemoteAddress() via.Address { return r.address }

// Close ends the connection: of a reliable ring, once the other side has taken what was
// sent, for which it waits up to 2 s. Completions of sends that are still under way run, with
// errors, before it returns. It frees the ring, and ends calls in progress with ErrClosed;
// entries and messages must not be touched any more. A second Close fails with ErrClosed.
func (r *Ring) Close() error {
	if r.closed.Swap(true) {
		return r.refuse("close ring", ErrClosed, "", "")
	}
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	if r.options.Reliability != via.Unreliable && r.broken() == nil {
		r.flush(ctx)
	}
	_ = r.lose(r.refuse("use ring", ErrClosed, "", ""))
	rest, end := context.WithTimeout(context.Background(), parting)
	defer end()
	err := r.d.Disconnect(rest)
	r.flush(rest)
	if errors.Is(err, ErrClosed) { // with its NIC
		err = nil
	}
	// What a slow end of the connection has used up of its time is not taken from this: a
	// ring that is not freed stays on the NIC.
	last, stop := context.WithTimeout(context.Background(), parting)
	defer stop()
	return errors.Join(err, r.free(last))
}

// flush waits until the device has done all sends, or ctx ends.
func (r *Ring) flush(ctx context.Context) {
	for {
		r.reap(len(r.send.entries))
		if n, _ := r.d.Queued(); n == 0 {
			return
		}
		// A device that says that a send is done, and then not, is not asked for ever.
		if err := r.d.WaitSend(ctx, nil); err != nil || ctx.Err() != nil {
			return
		}
	}
}

// free gives back what the ring has taken of the NIC.
func (r *Ring) free(ctx context.Context) error {
	err := r.d.Close(ctx)
	if r.frames != nil && err == nil {
		err = r.frames.Close(ctx)
	}
	if errors.Is(err, ErrClosed) { // its NIC was closed before
		return nil
	}
	return err
}

// lose notes why the connection has ended, unless it has ended before, and returns why it
// has.
func (r *Ring) lose(err error) error {
	r.lost.CompareAndSwap(nil, &err)
	return r.broken()
}

// broken is why the connection has ended, nil if it has not.
func (r *Ring) broken() error {
	if err := r.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// failed is err, which the driver has said, as an error of this ring: what ends the
// connection is remembered.
func (r *Ring) failed(op string, err error) error {
	switch {
	case gone(err):
		return r.lose(driver.NewError(op, r.nic.Name(), fmt.Errorf("%w: %w", ErrPeerGone, err)))
	case errors.Is(err, via.ErrDevice), errors.Is(err, ErrClosed):
		return r.lose(err)
	}
	return err
}

func (r *Ring) refuse(op string, cause error, hint, format string, args ...any) error {
	return refuse(r.nic, op, cause, hint, format, args...)
}
