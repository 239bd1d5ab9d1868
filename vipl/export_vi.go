package main

// #include "vipl.h"
// #include "callbacks.h"
import "C"

import (
	"cmp"
	"context"

	"github.com/trapeze-nic/trapeze/via"
)

// attributesOf reads the attributes of a VI; NULL has none.
func attributesOf(c *C.VIP_VI_ATTRIBUTES, tag C.uintptr_t) (a viAttributes, err error) {
	if c == nil {
		return a, nil
	}
	if c.QoS != nil {
		return a, via.ErrInvalidQoS
	}
	if c.ReliabilityLevel > 0xff {
		return a, via.ErrInvalidReliability
	}
	if c.MaxTransferSize > 1<<32-1 {
		return a, via.ErrInvalidMTU
	}
	return viAttributes{reliability: via.Reliability(c.ReliabilityLevel), maxTransfer: uint32(c.MaxTransferSize), ptag: handle(tag),
		rdmaWrite: c.EnableRdmaWrite != 0, rdmaRead: c.EnableRdmaRead != 0}, nil
}

// trapezeCreateVi makes a VI whose queues hold so many descriptors, as many as can be for zero.
//
//export trapezeCreateVi
func trapezeCreateVi(name C.uintptr_t, attributes *C.VIP_VI_ATTRIBUTES, tag, send, recv C.uintptr_t, sends, receives C.VIP_ULONG) (C.int, C.uintptr_t) {
	n := nics.find(handle(name))
	if n == nil {
		return C.VIP_INVALID_PARAMETER, 0
	}
	var tied [2]*cq
	for i, name := range []C.uintptr_t{send, recv} {
		if name == 0 {
			continue
		}
		if tied[i] = cqs.find(handle(name)); tied[i] == nil || tied[i].nic != n {
			return C.VIP_INVALID_PARAMETER, 0
		}
	}
	a, err := attributesOf(attributes, tag)
	if err != nil {
		return code(err), 0
	}
	most := C.VIP_ULONG(min(depth, n.device.via.Query().MaxDescriptors))
	if sends > most || receives > most {
		return C.VIP_ERROR_RESOURCE, 0
	}
	a.send, a.recv = int(cmp.Or(sends, most)), int(cmp.Or(receives, most))
	v, err := n.createVI(a, tied[0], tied[1])
	if err != nil {
		return code(err), 0
	}
	return C.VIP_SUCCESS, C.uintptr_t(v.name)
}

//export trapezeDestroyVi
func trapezeDestroyVi(name C.uintptr_t) C.int { return on(&vis, name, (*vi).destroy) }

// trapezeQueryVi also returns the handle of the ptag, whether the send queue is empty,
// and whether the receive queue is.
//
//export trapezeQueryVi
func trapezeQueryVi(name C.uintptr_t, state *C.VIP_VI_STATE, a *C.VIP_VI_ATTRIBUTES) (C.int, C.uintptr_t, C.int, C.int) {
	v := vis.find(handle(name))
	if v == nil {
		return C.VIP_INVALID_PARAMETER, 0, 0, 0
	}
	s, err := v.via.Query(v.nic.ctx)
	if err != nil {
		return code(err), 0, 0, 0
	}
	*state = C.VIP_VI_STATE(s.State)
	describe(via.Remote{Reliability: s.Attributes.Reliability, MaxTransfer: s.Attributes.MaxTransfer,
		RDMAWrite: s.Attributes.RDMAWrite, RDMARead: s.Attributes.RDMARead}, a)
	v.mu.Lock()
	defer v.mu.Unlock()
	return C.VIP_SUCCESS, C.uintptr_t(v.ptag), truth(s.SendQueued == 0), truth(s.RecvQueued == 0)
}

//export trapezeSetViAttributes
func trapezeSetViAttributes(name C.uintptr_t, attributes *C.VIP_VI_ATTRIBUTES, tag C.uintptr_t) C.int {
	return on(&vis, name, func(v *vi) error {
		a, err := attributesOf(attributes, tag)
		if err == nil {
			err = v.setAttributes(a)
		}
		return err
	})
}

func describe(r via.Remote, a *C.VIP_VI_ATTRIBUTES) {
	if a != nil {
		*a = C.VIP_VI_ATTRIBUTES{
			ReliabilityLevel: C.VIP_RELIABILITY_LEVEL(r.Reliability),
			MaxTransferSize:  C.VIP_ULONG(r.MaxTransfer),
			EnableRdmaWrite:  truth(r.RDMAWrite),
			EnableRdmaRead:   truth(r.RDMARead),
		}
	}
}

//export trapezeConnectWait
func trapezeConnectWait(name C.uintptr_t, local *C.VIP_NET_ADDRESS, timeout C.VIP_ULONG, remote *C.VIP_NET_ADDRESS,
	a *C.VIP_VI_ATTRIBUTES) (C.int, C.uintptr_t) {
	n := nics.find(handle(name))
	if n == nil {
		return C.VIP_INVALID_PARAMETER, 0
	}
	mac, discriminator, err := readAddress(local)
	if err != nil || mac != n.device.via.Query().Address {
		return C.VIP_INVALID_PARAMETER, 0
	}
	client := roomFor(remote)
	ctx, cancel := within(n.ctx, timeout)
	defer cancel()
	c, err := n.connectWait(ctx, discriminator)
	if err != nil {
		return code(err), 0
	}
	client.write(c.via.Remote.MAC, c.via.Discriminator)
	describe(c.via.Remote, a)
	return C.VIP_SUCCESS, C.uintptr_t(c.name)
}

//export trapezeConnectAccept
func trapezeConnectAccept(name, vi C.uintptr_t) C.int {
	return on(&connections, name, func(c *connection) error { return c.accept(vis.find(handle(vi))) })
}

//export trapezeConnectReject
func trapezeConnectReject(name C.uintptr_t) C.int {
	return on(&connections, name, (*connection).reject)
}

// ends reads the two addresses of a request, which may take some time.
func (v *vi) ends(local, remote *C.VIP_NET_ADDRESS, timeout C.VIP_ULONG) (to via.Address, name string, err error) {
	own, name, err := readAddress(local)
	if err != nil || timeout == 0 || own != v.nic.device.via.Query().Address {
		return to, "", via.ErrInvalidParameter
	}
	to.MAC, to.Discriminator, err = readAddress(remote)
	return to, name, err
}

//export trapezeConnectRequest
func trapezeConnectRequest(name C.uintptr_t, local, remote *C.VIP_NET_ADDRESS, timeout C.VIP_ULONG, a *C.VIP_VI_ATTRIBUTES) C.int {
	return on(&vis, name, func(v *vi) error {
		to, discriminator, err := v.ends(local, remote, timeout)
		if err != nil {
			return err
		}
		ctx, cancel := within(v.nic.ctx, timeout)
		defer cancel()
		r, err := v.request(ctx, to, discriminator)
		if err == nil {
			describe(r, a)
		}
		return err
	})
}

//export trapezeDisconnect
func trapezeDisconnect(name C.uintptr_t) C.int {
	return on(&vis, name, func(v *vi) error { return v.via.Disconnect(context.WithoutCancel(v.nic.ctx)) })
}
