package main

// #include "vipl.h"
import "C"

import "context"

//export trapezeDeregisterMem
func trapezeDeregisterMem(name, address C.uintptr_t, memory C.uint32_t) C.int {
	n := nics.find(handle(name))
	if n == nil {
		return C.VIP_INVALID_PARAMETER
	}
	r, err := n.findRegion(uint64(address), uint32(memory))
	if err == nil {
		err = r.end(context.WithoutCancel(n.ctx))
	}
	return code(err)
}

// trapezeQueryMem returns the handle of the ptag, and whether others may write and read.
//
//export trapezeQueryMem
func trapezeQueryMem(name, address C.uintptr_t, memory C.uint32_t) (C.int, C.uintptr_t, C.int, C.int) {
	n := nics.find(handle(name))
	if n == nil {
		return C.VIP_INVALID_PARAMETER, 0, 0, 0
	}
	r, err := n.findRegion(uint64(address), uint32(memory))
	if err != nil {
		return code(err), 0, 0, 0
	}
	a := r.attributes.Load()
	return C.VIP_SUCCESS, C.uintptr_t(a.ptag), truth(a.rdmaWrite), truth(a.rdmaRead)
}

//export trapezeSetMemAttributes
func trapezeSetMemAttributes(name, address C.uintptr_t, memory C.uint32_t, tag C.uintptr_t, write, read C.int) C.int {
	n := nics.find(handle(name))
	if n == nil {
		return C.VIP_INVALID_PARAMETER
	}
	r, err := n.findRegion(uint64(address), uint32(memory))
	if err == nil {
		err = r.setAttributes(memoryAttributes{handle(tag), write != 0, read != 0})
	}
	return code(err)
}
