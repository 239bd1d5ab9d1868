package main

// #include "vipl.h"
import "C"

import (
	"errors"

	"github.com/trapeze-nic/trapeze/via"
)

//export trapezeConnectPeerRequest
func trapezeConnectPeerRequest(name C.uintptr_t, local, remote *C.VIP_NET_ADDRESS, timeout C.VIP_ULONG) C.int {
	return on(&vis, name, func(v *vi) error {
		to, discriminator, err := v.ends(local, remote, timeout)
		if err != nil {
			return err
		}
		ctx, cancel := within(v.nic.ctx, timeout)
		if err := v.via.ConnectPeer(ctx, to, discriminator); err != nil {
			cancel()
			return err
		}
		// The attempt has the context until it ends.
		go func() {
			defer cancel()
			_, _ = v.via.ConnectPeerWait(v.nic.ctx)
		}()
		return nil
	})
}

//export trapezeConnectPeerDone
func trapezeConnectPeerDone(name C.uintptr_t, a *C.VIP_VI_ATTRIBUTES) C.int {
	return on(&vis, name, func(v *vi) error { return met(a)(v.via.ConnectPeerDone()) })
}

//export trapezeConnectPeerWait
func trapezeConnectPeerWait(name C.uintptr_t, a *C.VIP_VI_ATTRIBUTES) C.int {
	return on(&vis, name, func(v *vi) error { return met(a)(v.via.ConnectPeerWait(v.nic.ctx)) })
}

// met says what has become of an attempt, and describes the peer.
func met(a *C.VIP_VI_ATTRIBUTES) func(via.Remote, error) error {
	return func(r via.Remote, err error) error {
		switch {
		case err == nil:
			describe(r, a)
		case errors.Is(err, via.ErrWithdrawn), errors.Is(err, via.ErrPeerLost):
			return via.ErrTimeout
		case errors.Is(err, via.ErrCanceled):
			return via.ErrInvalidState // by VipDisconnect
		}
		return err
	}
}
