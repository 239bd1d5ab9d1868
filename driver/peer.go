package driver

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/pause"
)

// Peers are connected with what connects clients and servers: of two that ask for each
// other one is the client, which one their addresses say. They meet at a discriminator
// that is made of both addresses, so that no other program does, and no client that asks for
// one of theirs.

// peerRetry is a client's pause after it was told that no program waits: its peer has
// not asked yet.
const peerRetry = 5 * time.Millisecond

// ConnectPeer begins to connect an idle VI with a VI at the remote address whose owner
// does the same: it calls ConnectPeer with this side's addresses and those of its own
// swapped. It does not wait: ConnectPeerDone and ConnectPeerWait tell the outcome. Until
// then the VI is in state ConnectPending; ctx, which may have a deadline, ends the
// attempt, and Disconnect does.
//
// remote names one NIC, not a group, and differs from this side's own address, in the
// NIC or in the discriminator. It fails with ErrInvalidParameter for other ones or if no
// time is left, and with ErrInvalidState if the VI is not idle.
func (v *VI) ConnectPeer(ctx context.Context, remote Address, local string) error {
	const op = "connect peer"
	n := v.n
	if err := n.CheckCall(ctx, op); err != nil {
		return err
	}
	for _, name := range []string{remote.Discriminator, local} {
		if _, err := discriminator(name); err != nil {
			return n.error(op, err)
		}
	}
	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		return n.Refuse(op, descriptors.ErrInvalidParameter, "give it a context with time left", "no time to connect in: %w", err)
	}
	here := Address{MAC: n.identity.MAC, Discriminator: local}
	order := strings.Compare(addressKey(here), addressKey(remote))
	switch {
	case remote.MAC.IsMulticast():
		return n.Refuse(op, descriptors.ErrInvalidParameter, "a peer is one NIC", "the address of a group")
	case order == 0:
		return n.Refuse(op, descriptors.ErrInvalidParameter, "give them different discriminators", "both ends have the same address")
	}
	if err := v.begin(ctx, op); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &peer{cancel: cancel, done: make(chan struct{})}
	if err := v.beginPeer(ctx, op, p); err != nil {
		cancel()
		v.leaving.leave(n)
		return err
	}
	go func() {
		defer n.goroutines.Done()
		defer v.leaving.leave(n)
		defer close(p.done)
		defer cancel()
		meeting := meetingPoint(here, remote)
		if order < 0 {
			p.remote, p.err = v.askPeer(ctx, op, Address{MAC: remote.MAC, Discriminator: meeting}, here)
		} else {
			p.remote, p.err = v.awaitPeer(ctx, meeting, remote.MAC)
		}
	}()
	return nil
}

// beginPeer makes p the request of v, unless v is not idle, and counts it.
func (v *VI) beginPeer(ctx context.Context, op string, p *peer) error {
	s, err := v.Query(ctx)
	if err != nil {
		return err
	}
	n := v.n
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closing.Load(): // which Close says before it takes mu, and waits for those that began before
		return n.error(op, descriptors.ErrClosed)
	case s.State != datasheet.StateIdle || v.peer.pending():
		return n.Refuse(op, descriptors.ErrInvalidState, "", "the VI is in state %v", s.State)
	}
	v.peer = p
	n.goroutines.Add(1)
	return nil
}

// addressKey has the bytes by which addresses are compared.
func addressKey(a Address) string {
	return string(a.MAC[:]) + string([]byte{byte(len(a.Discriminator))}) + a.Discriminator
}

// meetingPoint is the discriminator at which two peers meet.
func meetingPoint(a, b Address) string {
	x, y := addressKey(a), addressKey(b)
	if x > y {
		x, y = y, x
	}
	sum := sha256.Sum256([]byte("peers" + x + y))
	return string(sum[:datasheet.MaxDiscriminator])
}

// askPeer is the client's part: it asks until the peer waits.
func (v *VI) askPeer(ctx context.Context, op string, at, here Address) (Remote, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Remote{}, v.n.error(op, err)
		}
		r, err := get(ctx, v.n.do, "connect request", func() (Remote, error) { return v.request(ctx, at, here.Discriminator) })
		late := errors.Is(err, descriptors.ErrInvalidParameter) && errors.Is(err, context.DeadlineExceeded) // since it was looked at
		if !late && !errors.Is(err, descriptors.ErrNoMatch) {
			return r, err
		}
		_ = pause.For(ctx, peerRetry)
	}
}

// awaitPeer is the server's part: it accepts the peer, or tells it that the two do not fit.
func (v *VI) awaitPeer(ctx context.Context, meeting string, from datasheet.MAC) (Remote, error) {
	for {
		c, err := v.n.ConnectWait(ctx, meeting)
		if err != nil {
			return Remote{}, err
		}
		if c.Remote.MAC != from {
			_ = c.Reject(ctx) // it is not who it knows of
			continue
		}
		r, err := get(ctx, v.n.do, "accept", func() (Remote, error) { return c.accept(ctx, &v.endpoint) })
		switch {
		case err == nil:
			return r, nil
		case errors.Is(err, descriptors.ErrWithdrawn), errors.Is(err, descriptors.ErrPeerLost):
			continue // it may ask again
		case errors.Is(err, descriptors.ErrInvalidReliability), errors.Is(err, descriptors.ErrInvalidMTU), errors.Is(err, descriptors.ErrInvalidState):
			_ = c.Reject(ctx)
		}
		return Remote{}, err
	}
}

// ConnectPeerDone says what has become of ConnectPeer: ErrNotDone, bare, while it goes
// on; then who is at the other end, or why it failed: with ErrTimeout or ErrCanceled as
// its context ended, or with an error of ConnectRequest or Accept. Of two peers that do
// not fit each other the one with the lower address gets ErrReject. Before the first
// ConnectPeer it fails with ErrInvalidState.
func (v *VI) ConnectPeerDone() (Remote, error) {
	p, err := v.lastPeer("connect peer done")
	switch {
	case err != nil:
		return Remote{}, err
	case p.pending():
		v.n.Poll()
		return Remote{}, descriptors.ErrNotDone
	}
	return p.remote, p.err
}

// ConnectPeerWait is ConnectPeerDone that waits until ctx ends. That does not end the
// attempt.
func (v *VI) ConnectPeerWait(ctx context.Context) (Remote, error) {
	const op = "connect peer wait"
	if err := v.n.CheckCall(ctx, op); err != nil {
		return Remote{}, err
	}
	p, err := v.lastPeer(op)
	if err != nil {
		return Remote{}, err
	}
	select {
	case <-p.done:
		return p.remote, p.err
	case <-ctx.Done():
		return Remote{}, v.n.error(op, ctx.Err())
	}
}

func (v *VI) lastPeer(op string) (*peer, error) {
	v.n.mu.Lock()
	defer v.n.mu.Unlock()
	if v.peer == nil {
		return nil, v.n.Refuse(op, descriptors.ErrInvalidState, "call ConnectPeer first", "")
	}
	return v.peer, nil
}
