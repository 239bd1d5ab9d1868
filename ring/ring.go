package ring

import (
	"context"
	"errors"
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
	frames  *via.Memory // of the first frames; nil without any
	address via.Address // of the other end

	send side
	recv side

	sendable, receivable memories

	closed atomic.Bool
	lost   atomic.Pointer[error] // the end of the connection
}

// closeTimeout bounds each step of Close: the last sends, the disconnection, and freeing.
const closeTimeout = 2 * time.Second

// newRing makes a ring with its receives posted, not connected yet.
func newRing(ctx context.Context, nic *via.NIC, o Options) (*Ring, error) {
	d, err := nic.CreateRing(ctx, driver.RingAttributes{Reliability: o.Reliability, Ptag: o.Ptag,
		MaxPayload: uint32(o.MaxPayload), SendDepth: o.Entries, RecvDepth: o.Entries})
	if err != nil {
		return nil, err
	}
	r := &Ring{nic: nic, d: d, options: o}
	r.options.Entries = d.Attributes().SendDepth
	if err := r.equip(ctx); err != nil {
		return nil, errors.Join(err, inTime(r.free))
	}
	return r, nil
}

// equip makes entries and frames, and posts the receives.
func (r *Ring) equip(ctx context.Context) (err error) {
	size, n := r.options.FrameSize, r.options.Entries
	if size > 0 {
		if r.frames, err = r.nic.Alloc(ctx, size*n, via.MemoryAttributes{Ptag: r.options.Ptag}); err != nil {
			return err
		}
	}
	r.send.init(r, &r.d.Send)
	r.recv.init(r, &r.d.Recv)
	for i := range r.recv.entries {
		e := &r.recv.entries[i]
		if size > 0 {
			e.frame = Frame{Memory: r.frames, Offset: i * size, Length: size}
			if e.payload, err = r.segment("create ring", e.frame, true); err != nil {
				return err
			}
		}
		if err := r.d.Recv.Put(uint32(i), nil, driver.RingEntry{Payload: e.payload}); err != nil {
			return err
		}
	}
	return r.d.Recv.Post(n)
}

// Entries returns the number of entries of each of the two rings.
func (r *Ring) Entries() int { return r.options.Entries }

// MaxPayload returns the size in bytes of the largest payload.
func (r *Ring) MaxPayload() int { return r.options.MaxPayload }

// Driver returns the driver's ring under this one, which has the state of the connection. Its
// entries belong to this ring.
func (r *Ring) Driver() *driver.Ring { return r.d }

// RemoteAddress returns the other end's address.
func (r *Ring) RemoteAddress() via.Address { return r.address }

// Close ends the connection and frees the ring. On a reliable ring it first waits up to 2 s
// for the peer to take all messages. It ends calls in progress with net.ErrClosed, and runs
// the done functions of all sends before it returns. Entries and messages must not be used any
// more.
func (r *Ring) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	if r.options.Reliability != via.Unreliable && r.broken() == nil {
		_ = inTime(r.flush)
	}
	_ = r.lose(r.refuse("use ring", via.ErrClosed, "", ""))
	err := inTime(func(ctx context.Context) error {
		err := r.d.Disconnect(ctx)
		_ = r.flush(ctx)
		return err
	})
	if errors.Is(err, via.ErrClosed) { // with its NIC
		err = nil
	}
	// Freeing has a time of its own, as a ring that is not freed stays on the NIC.
	return errors.Join(err, inTime(r.free))
}

// inTime runs one step of the end of a ring.
func inTime(step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return step(ctx)
}

// flush waits until the device has done all sends. It returns why it has not.
func (r *Ring) flush(ctx context.Context) error {
	for r.CheckSent(); r.d.Send.Queued() > 0; r.CheckSent() {
		// The check of ctx ends this also if a hostile device reports sends as done that
		// are not.
		if err := errors.Join(r.d.Send.Wait(ctx, nil), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// free gives the ring's resources back to the NIC.
func (r *Ring) free(ctx context.Context) error {
	err := r.d.Close(ctx)
	if r.frames != nil && err == nil {
		err = r.frames.Close(ctx)
	}
	if errors.Is(err, via.ErrClosed) { // its NIC was closed before
		return nil
	}
	return err
}

func (r *Ring) refuse(op string, cause error, hint, format string, args ...any) error {
	return refuse(r.nic, op, cause, hint, format, args...)
}
