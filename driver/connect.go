package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// Address names a connection point: a host, and a discriminator within it of 0
// to 32 bytes.
type Address struct {
	MAC           descriptors.MAC
	Discriminator []byte
}

// Remote is the other end of a connection.
type Remote struct {
	MAC         descriptors.MAC
	Endpoint    uint32
	MaxTransfer uint32
	Reliability descriptors.Reliability
	Rights      descriptors.Access
}

// Connection is a request to connect that waits for Accept or Reject.
type Connection struct {
	// Remote is who asks: its address, and the discriminator it gave as its own.
	Remote      Address
	MaxTransfer uint32
	Reliability descriptors.Reliability
	Rights      descriptors.Access

	n      *NIC
	number uint32
}

// discriminator lays out b for a command.
func (n *NIC) discriminator(op string, b []byte) (descriptors.Discriminator, error) {
	var d descriptors.Discriminator
	if len(b) > len(d.Data) {
		return d, n.refuse(op, fmt.Errorf("%w: discriminator of %d bytes", ErrInvalidParameter, len(b)),
			fmt.Sprintf("use at most %d", len(d.Data)))
	}
	d.Len = uint8(copy(d.Data[:], b))
	return d, nil
}

// ConnectRequest connects the VI, which is idle, to whoever waits at remote;
// local is this end's own discriminator. It waits for the answer until ctx
// ends. It fails with ErrNoMatch, ErrReject, ErrTimeout, ErrNotReachable,
// ErrInvalidState, ErrInvalidReliability, ErrInvalidMTU or the context's error;
// the VI is idle again then. Of calls of ConnectRequest 512 are with the device at a
// time; more wait for their turn. The same goes for Accept and for ConnectWait, each
// for itself.
func (v *VI) ConnectRequest(ctx context.Context, remote Address, local []byte) (Remote, error) {
	const op = "connect"
	if err := v.begin(op); err != nil {
		return Remote{}, err
	}
	defer v.n.end()
	to, err := v.n.discriminator(op, remote.Discriminator)
	if err != nil {
		return Remote{}, err
	}
	from, err := v.n.discriminator(op, local)
	if err != nil {
		return Remote{}, err
	}
	r, err := v.connect(ctx, classRequest, newCommand(descriptors.OpConnectRequest, descriptors.ConnectRequestBody{
		Endpoint: v.number, TimeoutMS: timeoutMS(ctx), RemoteMAC: remote.MAC, Remote: to, Local: from,
	}))
	return r, v.n.error(op, err)
}

// connect carries out a command that connects the VI. A VI that cannot be connected
// because its last connection has ended says how.
func (v *VI) connect(ctx context.Context, class class, cmd *descriptors.Command) (Remote, error) {
	before := v.ending.begin()
	reply, err := v.n.connect(ctx, class, cmd)
	if err != nil {
		v.ending.undo(before)
		if end := v.ending.err(); end != nil && errors.Is(err, ErrInvalidState) {
			err = fmt.Errorf("%w: %w", err, end)
		}
		return Remote{}, err
	}
	r := descriptors.Reply[descriptors.ConnectedReply](reply)
	return Remote{MAC: r.RemoteMAC, Endpoint: r.RemoteEndpoint, MaxTransfer: r.MaxTransfer, Reliability: r.Reliability, Rights: r.RemoteRights}, nil
}

// Disconnect ends the VI's connection, or its error state: posted descriptors
// complete, flushed, in order, and the VI is idle. The peer gets ErrDisconnected; on
// a reliable VI ErrConnectionBroken if it has not taken all that was posted here.
func (v *VI) Disconnect(ctx context.Context) error {
	const op = "disconnect"
	if err := v.begin(op); err != nil {
		return err
	}
	defer v.n.end()
	_, err := v.n.execute(ctx, newCommand(descriptors.OpDisconnect, descriptors.EndpointBody{Endpoint: v.number}))
	if err == nil {
		v.ending.local()
	}
	return v.n.error(op, err)
}

// ConnectWait waits at the discriminator local until somebody asks to connect
// or ctx ends.
func (n *NIC) ConnectWait(ctx context.Context, local []byte) (*Connection, error) {
	const op = "wait for connection"
	if err := n.begin(op); err != nil {
		return nil, err
	}
	defer n.end()
	at, err := n.discriminator(op, local)
	if err != nil {
		return nil, err
	}
	reply, err := n.connect(ctx, classWait, newCommand(descriptors.OpConnectWait, descriptors.ConnectWaitBody{TimeoutMS: timeoutMS(ctx), Local: at}))
	if err != nil {
		return nil, n.error(op, err)
	}
	r := descriptors.Reply[descriptors.ConnectionReply](reply)
	if int(r.Remote.Len) > len(r.Remote.Data) {
		return nil, n.error(op, fmt.Errorf("%w: discriminator of %d bytes", ErrProtocol, r.Remote.Len))
	}
	return &Connection{n: n, number: r.Connection, MaxTransfer: r.MaxTransfer, Reliability: r.Reliability, Rights: r.RemoteRights,
		Remote: Address{MAC: r.RemoteMAC, Discriminator: bytes.Clone(r.Remote.Data[:r.Remote.Len])}}, nil
}

// Accept connects the VI, which is idle, to the one that asks. It fails with
// ErrInvalidReliability or ErrInvalidMTU if the two do not fit each other, of
// which the other side learns nothing: another VI may accept. If the client no
// longer waits, ErrWithdrawn says so. ErrPeerLost is a client that has died
// since it asked: its NIC answers an accept at once, so that Accept ends after the
// device's dead time (3 s) then, whatever ctx says. With these, with ErrTimeout and
// with the context's error the request is over.
func (c *Connection) Accept(ctx context.Context, v *VI) (Remote, error) {
	const op = "accept connection"
	if v == nil || v.n != c.n {
		return Remote{}, c.n.refuse(op, fmt.Errorf("%w: not a VI of this NIC", ErrInvalidParameter), "create the VI on the NIC that waited")
	}
	if err := v.begin(op); err != nil {
		return Remote{}, err
	}
	defer c.n.end()
	r, err := v.connect(ctx, classAccept, newCommand(descriptors.OpConnectAccept, descriptors.ConnectAcceptBody{
		Connection: c.number, Endpoint: v.number, TimeoutMS: timeoutMS(ctx),
	}))
	return r, c.n.error(op, err)
}

// Reject turns the request down. ErrWithdrawn is a client that no longer waits.
func (c *Connection) Reject(ctx context.Context) error {
	const op = "reject connection"
	if err := c.n.begin(op); err != nil {
		return err
	}
	defer c.n.end()
	_, err := c.n.execute(ctx, newCommand(descriptors.OpConnectReject, descriptors.ConnectRejectBody{Connection: c.number}))
	return c.n.error(op, err)
}
