package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// endpoint is the common part of VIs and rings: a number on the device, and how they are
// connected, looked at and destroyed.
type endpoint struct {
	n       *NIC
	what    string // "VI" or "ring", for errors
	number  uint32
	queues  queues
	leaving leaving
	ending  ending
	peer    *peer // the last request to connect with a peer, of a VI; guarded by NIC.mu
}

// queues are the two queues of an endpoint.
type queues interface {
	// refuse ends posting and the use of the doorbells, or allows both again.
	refuse(yes bool)
	// close ends all use of the queues. What is posted is the program's again.
	close()
	// forget is called once the device knows the endpoint no more, and before its number
	// is free.
	forget()
	// free gives back what the queues have taken of the NIC.
	free() error
	// holds reports whether something posted needs the region handle.
	holds(handle uint32) bool
	// lose is told that the status of the descriptor at address cannot be written.
	lose(address uint64)
}

// Endpoint is a VI, a ring or a channel.
type Endpoint interface {
	// end returns the common part of them.
	end() *endpoint
}

func (e *endpoint) end() *endpoint { return e }

// EndpointState is the device's state of an endpoint. Counts are free-running.
type EndpointState struct {
	State          datasheet.State
	SendProducer   uint32 // descriptors posted, as far as the device has seen
	SendCompleted  uint32
	RecvProducer   uint32
	RecvCompleted  uint32
	RemoteMAC      datasheet.MAC
	RemoteEndpoint uint32
}

// adopt enters an endpoint that the device has created into the table, under the number
// that it says: zero is that of channel 0 only. What it says may be nonsense.
func (n *NIC) adopt(e *endpoint, number uint32, kernel bool) error {
	e.number = number
	if (number == 0) != kernel || number >= uint32(len(n.endpoints)) {
		return n.fail(fmt.Errorf("%w: it gave out endpoint %d of %d", ErrProtocol, number, len(n.endpoints)))
	}
	entry := &n.endpoints[number]
	if !entry.CompareAndSwap(nil, e) {
		// A device may give a number away again before the destroyer has seen the answer.
		if old := entry.Load(); old != nil {
			old.leaving.wait(n)
		}
		if !entry.CompareAndSwap(nil, e) {
			return n.fail(fmt.Errorf("%w: it gave out endpoint %d twice", ErrProtocol, number))
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	living := append(slices.Clone(n.present()), e)
	n.living.Store(&living)
	return nil
}

// leave takes e, which the device has destroyed, out of the table.
func (n *NIC) leave(e *endpoint) {
	n.mu.Lock()
	living := slices.DeleteFunc(slices.Clone(n.present()), func(other *endpoint) bool { return other == e })
	n.living.Store(&living)
	n.mu.Unlock()
	n.endpoints[e.number].Store(nil)
}

// present returns the endpoints that there are: few, of the thousands of numbers that a
// device may have.
func (n *NIC) present() []*endpoint {
	if p := n.living.Load(); p != nil {
		return *p
	}
	return nil
}

// endpoint returns the endpoint with a number, nil if there is none.
func (n *NIC) endpoint(number uint32) *endpoint {
	if number >= uint32(len(n.endpoints)) {
		return nil
	}
	return n.endpoints[number].Load()
}

// forget, free and lose are those of rings and channels. No CQ knows of these. Their memory is the
// device's or the caller's, and has no status word that cannot be written.
func (e *endpoint) forget()     {}
func (e *endpoint) free() error { return nil }
func (e *endpoint) lose(uint64) {}

// Number returns the endpoint's number on this device.
func (e *endpoint) Number() uint32 { return e.number }

// do is NIC.do for an endpoint that is not destroyed, and a use of it.
func (e *endpoint) do(ctx context.Context, op string, f func() error) error {
	return e.n.do(ctx, op, func() error {
		if err := e.leaving.use(e.n); err != nil {
			return err
		}
		defer e.leaving.leave(e.n)
		return f()
	})
}

// look is do for what does not keep the endpoint from being closed.
func (e *endpoint) look(ctx context.Context, op string, f func() error) error {
	return e.leaving.do(ctx, e.n, op, f)
}

// execute carries out a command about the endpoint. It fails with ErrClosed once the closing has begun, however long the
// command has waited for its turn: the number may be another's then.
func (e *endpoint) execute(ctx context.Context, cmd *datasheet.Command) (*datasheet.AdminEntry, error) {
	return e.n.executeUntil(ctx, e.n.done, newTimeLeft(e.n.options.CommandTimeout), cmd, &e.leaving)
}

// begin counts a call in progress that consists of several operations. What it begins leaving.leave ends.
func (e *endpoint) begin(ctx context.Context, op string) error {
	if err := e.n.CheckCall(ctx, op); err != nil {
		return err
	}
	return e.n.error(op, e.leaving.use(e.n))
}

// Query asks the device for the state of the endpoint.
func (e *endpoint) Query(ctx context.Context) (EndpointState, error) {
	return get(ctx, e.look, "query "+e.what, func() (EndpointState, error) { return e.state(ctx, &e.leaving) })
}

// state asks the device; of is described at executeUntil.
func (e *endpoint) state(ctx context.Context, of *leaving) (s EndpointState, err error) {
	reply, err := e.n.executeUntil(ctx, e.n.done, newTimeLeft(e.n.options.CommandTimeout),
		newCommand(datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: e.number}), of)
	if err != nil {
		return s, err
	}
	r := datasheet.Reply[datasheet.EndpointReply](reply)
	return EndpointState{State: r.State, SendProducer: r.SendProducer, SendCompleted: r.SendCompleted, RecvProducer: r.RecvProducer,
		RecvCompleted: r.RecvCompleted, RemoteMAC: r.RemoteMAC, RemoteEndpoint: r.RemoteEndpoint}, nil
}

// Close ends the endpoint, connected or not, empty or not. What was posted and not taken
// back is the caller's again when Close returns; posting fails with ErrClosed as soon as it
// begins. A second call does nothing.
func (e *endpoint) Close(ctx context.Context) error {
	_, err := e.closeUnless(ctx, "close "+e.what, nil, nil)
	return err
}

// closeUnless is Close that reports whether this call has taken the endpoint from the device. It fails with what inTheWay says,
// as for leaving.begin, and with what check says, which is called while no other call begins; both may be nil.
func (e *endpoint) closeUnless(ctx context.Context, op string, inTheWay, check func() error) (gone bool, err error) {
	n := e.n
	err = n.doClosing(ctx, op, func() error {
		if first, err := e.leaving.begin(n, inTheWay); !first {
			return err
		}
		if check != nil {
			if err := check(); err != nil {
				e.leaving.undo(n)
				return err
			}
		}
		// Nothing more is posted: it would keep the device from destroying the endpoint, or
		// ring for the next one with its number.
		e.queues.refuse(true)
		err := e.destroyed(ctx)
		if err != nil && !outcomeUnknown(err) {
			e.queues.refuse(false)
			e.leaving.undo(n)
			return err
		}
		defer e.leaving.end(n)
		e.queues.close()
		if err != nil {
			return err
		}
		e.queues.forget()
		n.leave(e)
		gone = true
		return e.queues.free()
	})
	return gone, err
}

func (e *endpoint) destroyed(ctx context.Context) error {
	cmd := newCommand(datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: e.number})
	_, err := e.n.execute(ctx, cmd)
	if refused, ok := errors.AsType[*CommandError](err); ok && (refused.Result == datasheet.ResultInvalidState || refused.Result == datasheet.ResultResource) {
		// It is connected, or not empty.
		_, err = e.n.execute(ctx, newCommand(datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: e.number}))
		if err == nil {
			_, err = e.n.execute(ctx, cmd)
		}
	}
	return err
}

// peer is a request for a connection between peers.
type peer struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when remote and err are set
	remote Remote
	err    error
}

// pending reports whether it has not come to an end.
func (p *peer) pending() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// endPeer ends an attempt that goes on.
func (e *endpoint) endPeer() {
	e.n.mu.Lock()
	p := e.peer
	e.n.mu.Unlock()
	if p.pending() {
		p.cancel()
		<-p.done
	}
}

// checkPeer fails if an attempt goes on.
func (e *endpoint) checkPeer() error {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	if e.peer.pending() {
		return refusal(descriptors.ErrInvalidState, "", "the VI is being connected with a peer")
	}
	return nil
}

// ended says how the connection ended whose end shows in status, of a descriptor
// that completed in error. It is 0 if the connection goes on, there was none, or
// this side has ended it.
func (e *endpoint) ended(level datasheet.Reliability, status datasheet.Status) descriptors.Code {
	if level == datasheet.Unreliable && status&datasheet.StatusFlushed == 0 {
		return 0 // the error is the descriptor's alone
	}
	if e.ending.what.Load() == endingOpen {
		// The device reports the event after the descriptors, and answers a
		// command after the event: with the answer the event is there too.
		switch s, err := e.Query(context.Background()); {
		case err != nil:
			e.ending.local() // it cannot be told
		case s.State == datasheet.StateError:
			e.ending.what.CompareAndSwap(endingOpen, endingLost)
		}
	}
	return e.ending.code()
}
