package main

// #include "vipl.h"
// #include "callbacks.h"
import "C"

import "github.com/trapeze-nic/trapeze/via"

//export trapezeNotify
func trapezeNotify(name C.uintptr_t, receive C.int, context, function C.uintptr_t) C.int {
	return on(&vis, name, func(v *vi) error {
		switch q := v.queue(receive); {
		case function == 0 || q.cq != nil:
			return via.ErrInvalidParameter
		case q == &v.recv:
			return v.via.NotifyRecv(v.notice(context, function))
		}
		return v.via.NotifySend(v.notice(context, function))
	})
}

// notice calls a function of the program's for a descriptor. A NIC that fails has none.
func (v *vi) notice(context, function C.uintptr_t) func(*via.Descriptor, error) {
	return func(d *via.Descriptor, _ error) {
		if d != nil {
			C.trapeze_completed(function, context, C.uintptr_t(v.nic.name), C.uintptr_t(v.name), at(d))
		}
	}
}

//export trapezeCQNotify
func trapezeCQNotify(name, context, function C.uintptr_t) C.int {
	c := cqs.find(handle(name))
	if c == nil || function == 0 {
		return C.VIP_INVALID_PARAMETER
	}
	var told func(e via.Completion, err error)
	told = func(e via.Completion, err error) {
		if v := c.owner(e.VI); v != nil {
			C.trapeze_cq_completed(function, context, C.uintptr_t(c.nic.name), C.uintptr_t(v.name), truth(e.Queue == via.RecvQueue))
		} else if err == nil {
			_ = c.via.Notify(told) // the VI is being destroyed. If the CQ is too, there is no notice
		}
	}
	return code(c.via.Notify(told))
}
