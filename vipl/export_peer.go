package main

// #include "vipl.h"
import "C"

import (
	"errors"

	"github.com/trapeze-nic/trapeze/via"
)

//export trapezeConnectPeerRequest
func trapezeConnectPeerRequest(name C.uintptr_t, local, remote *C.VIP_NET_ADDRESS, timeout C.VIP_ULONG) C.int {
	v := vis.find(handle(name))
	if v == nil || timeout == 0 {
		return C.VIP_INVALID_PARAMETER
	}
	to, discriminator, err := v.ends(local, remote)
	if err != nil {
		return code(err)
	}
	ctx, cancel := within(v.nic.ctx, timeout)
	if err := v.via.ConnectPeer(ctx, to, discriminator); err != nil {
		cancel()
		return code(err)
	}
	// The attempt has the context until it ends.
	go func() {
		defer cancel()
		_, _ = v.via.ConnectPeerWait(v.nic.ctx)
	}()
	return C.VIP_SUCCESS
}

//export trapezeConnectPeerDone
func trapezeConnectPeerDone(name C.uintptr_t, a *C.VIP_VI_ATTRIBUTES) C.int {
	v := vis.find(handle(name))
	if v == nil {
		return C.VIP_INVALID_PARAMETER
	}
	return met(a)(v.via.ConnectPeerDone())
}

//export trapezeConnectPeerWait
func trapezeConnectPeerWait(name C.uintptr_t, a *C.VIP_VI_ATTRIBUTES) C.int {
	v := vis.find(handle(name))
	if v == nil {
		return C.VIP_INVALID_PARAMETER
	}
	return met(a)(v.via.ConnectPeerWait(v.nic.ctx))
}

// met says what has become of an attempt, and describes the peer.
func met(a *C.VIP_VI_ATTRIBUTES) func(via.Remote, error) C.int {
	return func(r via.Remote, err error) C.int {
		switch {
		case err == nil:
			describe(r, a)
		case errors.Is(err, via.ErrWithdrawn), errors.Is(err, via.ErrPeerLost):
			return C.VIP_TIMEOUT
		case errors.Is(err, via.ErrCanceled):
			return C.VIP_INVALID_STATE // by VipDisconnect
		}
		return code(err)
	}
}
