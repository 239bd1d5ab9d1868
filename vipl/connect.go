package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/via"
)

type connection struct {
	name handle
	nic  *nic
	via  *via.Connection
	mu   sync.Mutex // held by who answers it
}

func (n *nic) connectWait(ctx context.Context, local string) (*connection, error) {
	found, err := n.device.via.ConnectWait(ctx, local)
	if err != nil {
		return nil, err
	}
	c := &connection{nic: n, via: found}
	if err := enter(n, &connections, c, &c.name, n.connections); err != nil {
		_ = found.Reject(context.Background())
		return nil, err
	}
	return c, nil
}

// forget ends the handle of a request that is answered.
func (c *connection) forget() {
	connections.remove(c.name)
	c.nic.mu.Lock()
	defer c.nic.mu.Unlock()
	delete(c.nic.connections, c)
}

const (
	// matchTimeout limits a request to which no peer answers yet that it
	// waits. Programs agree by other means when to connect, and the client may be quicker.
	matchTimeout = 2 * time.Second
	matchEvery   = 2 * time.Millisecond
)

// request connects v with the waiter at an address, now or soon.
func (v *vi) request(ctx context.Context, to via.Address, local string) (r via.Remote, err error) {
	for end := time.Now().Add(matchTimeout); ; {
		r, err = v.via.ConnectRequest(ctx, to, local)
		if !errors.Is(err, via.ErrNoMatch) || time.Now().After(end) {
			return r, err
		}
		if pause.For(ctx, matchEvery) != nil {
			return r, err
		}
	}
}

// accept connects v. A request that v does not fit waits on for another VI.
func (c *connection) accept(v *vi) error {
	if v == nil || v.nic != c.nic {
		return via.ErrInvalidParameter
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if connections.find(c.name) != c {
		return via.ErrInvalidParameter
	}
	_, err := c.via.Accept(c.nic.ctx, v.via)
	for _, waits := range []error{via.ErrInvalidReliability, via.ErrInvalidMTU, via.ErrInvalidState, via.ErrInvalidParameter} {
		if err != nil && errors.Is(err, waits) {
			return err
		}
	}
	c.forget()
	if errors.Is(err, via.ErrWithdrawn) || errors.Is(err, via.ErrPeerLost) {
		return via.ErrTimeout // of the client's
	}
	return err
}

// reject turns the request down. That the client no longer waits is as good.
func (c *connection) reject() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if connections.find(c.name) != c {
		return via.ErrInvalidParameter
	}
	err := c.via.Reject(c.nic.ctx)
	c.forget()
	if errors.Is(err, via.ErrWithdrawn) {
		return nil
	}
	return err
}
