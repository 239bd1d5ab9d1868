package main

// #include "vipl.h"
// #include "callbacks.h"
import "C"

import (
	"github.com/trapeze-nic/trapeze/via"
)

//export trapezeOpenNic
func trapezeOpenNic(name *C.VIP_CHAR) (C.int, C.uintptr_t) {
	called := C.GoString(name)
	n, err := openNIC(called)
	if err != nil {
		logOpen(called, err)
		return code(err), 0
	}
	return C.VIP_SUCCESS, C.uintptr_t(n.name)
}

//export trapezeCloseNic
func trapezeCloseNic(name C.uintptr_t) C.int {
	return on(&nics, name, func(n *nic) error {
		defer n.freeAddress()
		return n.close()
	})
}

//export trapezeQueryNic
func trapezeQueryNic(name C.uintptr_t, a *C.VIP_NIC_ATTRIBUTES) C.int {
	n := nics.find(handle(name))
	if n == nil {
		return C.VIP_INVALID_PARAMETER
	}
	q := n.device.via.Query()
	address := n.localAddress(q.Address)
	if address == nil {
		return C.VIP_INVALID_PARAMETER
	}
	*a = C.VIP_NIC_ATTRIBUTES{
		HardwareVersion:         C.VIP_ULONG(q.HardwareVersion),
		ProviderVersion:         C.VIP_ULONG(q.ProviderVersion),
		NicAddressLen:           C.VIP_UINT16(len(q.Address)),
		LocalNicAddress:         address,
		ThreadSafe:              truth(q.ThreadSafe),
		MaxDiscriminatorLen:     C.VIP_UINT16(q.MaxDiscriminator),
		MaxRegisterBytes:        C.VIP_ULONG(q.MaxRegistered),
		MaxRegisterBlockBytes:   C.VIP_ULONG(q.MaxRegion),
		MaxRegisterRegions:      C.VIP_ULONG(q.MaxRegions),
		MaxVI:                   C.VIP_ULONG(q.MaxVIs),
		MaxDescriptorsPerQueue:  C.VIP_ULONG(min(depth, q.MaxDescriptors)),
		MaxSegmentsPerDesc:      C.VIP_ULONG(q.MaxSegments),
		MaxCQ:                   C.VIP_ULONG(q.MaxCQs),
		MaxCQEntries:            C.VIP_ULONG(q.MaxCQEntries),
		MaxTransferSize:         C.VIP_ULONG(q.MaxTransfer),
		NativeMTU:               C.VIP_ULONG(q.MTU),
		MaxPtags:                C.VIP_ULONG(q.MaxPtags),
		ReliabilityLevelSupport: C.VIP_RELIABILITY_LEVEL(q.Reliability),
		RDMAReadSupport:         C.VIP_RELIABILITY_LEVEL(q.RDMARead),
	}
	for i := range min(len(n.called), len(a.Name)-1) {
		a.Name[i] = C.VIP_CHAR(n.called[i])
	}
	return C.VIP_SUCCESS
}

// operationShift is where a status, and the OpCode of an error, has its operation.
const operationShift = 16

// errorHandler is a function of the program's. Function and context are numbers here:
// programs pass contexts that are no addresses.
type errorHandler struct{ function, context C.uintptr_t }

//export trapezeErrorCallback
func trapezeErrorCallback(name, context, function C.uintptr_t) C.int {
	return on(&nics, name, func(n *nic) error {
		if function == 0 {
			n.setHandler(nil)
		} else {
			n.setHandler(&errorHandler{function, context})
		}
		return nil
	})
}

// call calls the handler with an error of n's device, about a VI if it is known.
func (h *errorHandler) call(n *nic, about *vi, e via.AsyncError) {
	var viName, cqName C.uintptr_t
	if about != nil {
		viName = C.uintptr_t(about.name)
	}
	if e.CQ != nil {
		cqName = C.uintptr_t(n.cqName(e.CQ))
	}
	code := C.int(e.Code)
	if e.Code > via.AsyncCatastrophic {
		code = C.VIP_ERROR_CATASTROPHIC // a CQ that was full
	}
	operation := C.ulong(e.Operation) << operationShift
	if e.Code == via.AsyncConnectionLost {
		operation = C.ulong(e.Detail)
	}
	C.trapeze_error(h.function, h.context, C.uintptr_t(n.name), viName, cqName,
		C.uintptr_t(e.Descriptor), operation, C.int(e.Resource), code)
}

//export trapezeCreatePtag
func trapezeCreatePtag(name C.uintptr_t) (result C.int, tag C.uintptr_t) {
	result = on(&nics, name, func(n *nic) error {
		p, err := n.createPtag()
		if err == nil {
			tag = C.uintptr_t(p.name)
		}
		return err
	})
	return result, tag
}

//export trapezeDestroyPtag
func trapezeDestroyPtag(name, tag C.uintptr_t) C.int {
	return on(&nics, name, func(n *nic) error { return n.destroyPtag(handle(tag)) })
}
