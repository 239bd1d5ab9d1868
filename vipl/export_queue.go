package main

// #include "vipl.h"
import "C"

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// code is the return code of err: the VIA code that its own refines.
func code(err error) C.int {
	if err == nil {
		return C.VIP_SUCCESS
	}
	if c, ok := errors.AsType[via.Code](err); ok {
		if c == via.ErrCanceled {
			return C.VIP_INVALID_PARAMETER // the NIC handle was closed
		}
		if base := c.VIA(); base != 0 {
			return C.int(base)
		}
	}
	return C.VIP_ERROR_RESOURCE
}

// on calls f with the object of a handle, and returns the code of its error.
func on[T any](t *table[T], name C.uintptr_t, f func(*T) error) C.int {
	object := t.find(handle(name))
	if object == nil {
		return C.VIP_INVALID_PARAMETER
	}
	return code(f(object))
}

// posted is the code of a post: VIA has one for all that is wrong with a descriptor.
func posted(err error) C.int {
	if err == nil {
		return C.VIP_SUCCESS
	}
	if errors.Is(err, via.ErrInvalidPtag) {
		return C.VIP_INVALID_PARAMETER
	}
	return code(err)
}

// from says what Done or a wait has returned: a code, and where the descriptor is.
func from(d *via.Descriptor, err error) (C.int, C.uintptr_t) {
	switch {
	case err == nil:
		return C.VIP_SUCCESS, at(d)
	case d != nil:
		return C.VIP_DESCRIPTOR_ERROR, at(d)
	case err == via.ErrNotDone:
		return C.VIP_NOT_DONE, 0
	}
	return code(err), 0
}

// unmapped is deferred by what reads descriptors, after debug.SetPanicOnFault, which holds
// for all that a thread of the program's calls: memory that the program has unmapped while
// the library has it is no signal, but a code.
func unmapped(r *C.int) {
	switch e := recover().(type) {
	case nil:
	case interface{ Addr() uintptr }: // as buserror.Catch
		*r = C.VIP_INVALID_PARAMETER
	default:
		panic(e)
	}
}

func at(d *via.Descriptor) C.uintptr_t { return C.uintptr_t(d.Token().Address) }

func (v *vi) queue(receive C.int) *queue {
	if receive != 0 {
		return &v.recv
	}
	return &v.send
}

//export trapezePost
func trapezePost(name C.uintptr_t, receive C.int, descriptor C.uintptr_t, memory C.uint32_t) (r C.int) {
	defer unmapped(&r)
	debug.SetPanicOnFault(true)
	v := vis.find(handle(name))
	if v == nil {
		return C.VIP_INVALID_PARAMETER
	}
	return posted(v.postAt(v.queue(receive), uint64(descriptor), uint32(memory)))
}

//export trapezeDone
func trapezeDone(name C.uintptr_t, receive C.int) (r C.int, d C.uintptr_t) {
	defer unmapped(&r)
	debug.SetPanicOnFault(true)
	v := vis.find(handle(name))
	if v == nil {
		return C.VIP_INVALID_PARAMETER, 0
	}
	return from(v.queue(receive).done())
}

//export trapezeWait
func trapezeWait(name C.uintptr_t, receive C.int, timeout C.VIP_ULONG) (r C.int, d C.uintptr_t) {
	defer unmapped(&r)
	debug.SetPanicOnFault(true)
	v := vis.find(handle(name))
	if v == nil || v.queue(receive).cq != nil { // the CQ says what completes
		return C.VIP_INVALID_PARAMETER, 0
	}
	q := v.queue(receive)
	// Most often there is no need to wait, or no time.
	if c, d := from(q.done()); c != C.VIP_NOT_DONE {
		return c, d
	}
	if timeout == 0 {
		return C.VIP_TIMEOUT, 0
	}
	ctx, cancel := within(v.nic.ctx, timeout)
	defer cancel()
	return from(q.wait(ctx))
}

// longest is the longest timeout in milliseconds that a time.Duration holds.
const longest = 1 << 43

func within(parent context.Context, timeout C.VIP_ULONG) (context.Context, context.CancelFunc) {
	if timeout > longest {
		return parent, func() {}
	}
	return context.WithTimeout(parent, time.Duration(timeout)*time.Millisecond)
}

//export trapezeCreateCQ
func trapezeCreateCQ(name C.uintptr_t, entries C.VIP_ULONG) (C.int, C.uintptr_t) {
	n := nics.find(handle(name))
	if n == nil || entries == 0 {
		return C.VIP_INVALID_PARAMETER, 0
	}
	if entries > C.VIP_ULONG(n.device.via.Query().MaxCQEntries) {
		return C.VIP_ERROR_RESOURCE, 0
	}
	c, err := n.createCQ(int(entries))
	if err != nil {
		return code(err), 0
	}
	return C.VIP_SUCCESS, C.uintptr_t(c.name)
}

//export trapezeDestroyCQ
func trapezeDestroyCQ(name C.uintptr_t) C.int { return on(&cqs, name, (*cq).destroy) }

//export trapezeResizeCQ
func trapezeResizeCQ(name C.uintptr_t, entries C.VIP_ULONG) C.int {
	return on(&cqs, name, func(c *cq) error {
		switch {
		case entries == 0:
			return via.ErrInvalidParameter
		case entries > C.VIP_ULONG(c.nic.device.via.Query().MaxCQEntries):
			return via.ErrResource
		}
		return c.resize(int(entries))
	})
}

// trapezeCQDone returns the VI, and whether it is its receive queue.
//
//export trapezeCQDone
func trapezeCQDone(name C.uintptr_t) (C.int, C.uintptr_t, C.int) {
	c := cqs.find(handle(name))
	if c == nil {
		return C.VIP_INVALID_PARAMETER, 0, 0
	}
	return c.completed(c.via.Done())
}

//export trapezeCQWait
func trapezeCQWait(name C.uintptr_t, timeout C.VIP_ULONG) (C.int, C.uintptr_t, C.int) {
	c := cqs.find(handle(name))
	if c == nil {
		return C.VIP_INVALID_PARAMETER, 0, 0
	}
	if e, err := c.via.Done(); err != via.ErrNotDone {
		return c.completed(e, err)
	}
	if timeout == 0 {
		return C.VIP_TIMEOUT, 0, 0
	}
	ctx, cancel := within(c.nic.ctx, timeout)
	defer cancel()
	return c.completed(c.via.Wait(ctx))
}

// completed says which queue of which VI has completed something.
func (c *cq) completed(e via.Completion, err error) (C.int, C.uintptr_t, C.int) {
	if err == via.ErrNotDone {
		return C.VIP_NOT_DONE, 0, 0
	}
	if err != nil {
		return code(err), 0, 0
	}
	v := c.owner(e.VI)
	if v == nil {
		return C.VIP_NOT_DONE, 0, 0
	}
	return C.VIP_SUCCESS, C.uintptr_t(v.name), truth(e.Queue == via.RecvQueue)
}

func truth(b bool) C.int {
	if b {
		return C.VIP_TRUE
	}
	return C.VIP_FALSE
}
