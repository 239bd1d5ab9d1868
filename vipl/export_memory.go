package main

// #include "vipl.h"
import "C"

import "context"

//export trapezeDeregisterMem
func trapezeDeregisterMem(name, address C.uintptr_t, memory C.uint32_t) C.int {
	return onRegion(name, address, memory, func(r *region) error { return r.end(context.WithoutCancel(r.nic.ctx)) })
}

// trapezeQueryMem returns the handle of the ptag, and whether others may write and read.
//
//export trapezeQueryMem
func trapezeQueryMem(name, address C.uintptr_t, memory C.uint32_t) (result C.int, tag C.uintptr_t, write, read C.int) {
	result = onRegion(name, address, memory, func(r *region) error {
		a := r.attributes.Load()
		tag, write, read = C.uintptr_t(a.ptag), truth(a.rdmaWrite), truth(a.rdmaRead)
		return nil
	})
	return result, tag, write, read
}

//export trapezeSetMemAttributes
func trapezeSetMemAttributes(name, address C.uintptr_t, memory C.uint32_t, tag C.uintptr_t, write, read C.int) C.int {
	return onRegion(name, address, memory, func(r *region) error {
		return r.setAttributes(memoryAttributes{handle(tag), write != 0, read != 0})
	})
}

func onRegion(name, address C.uintptr_t, memory C.uint32_t, f func(*region) error) C.int {
	return on(&nics, name, func(n *nic) error {
		r, err := n.findRegion(uint64(address), uint32(memory))
		if err != nil {
			return err
		}
		return f(r)
	})
}
