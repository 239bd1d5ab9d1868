package main

// #include <stdlib.h>
// #include "vipl.h"
import "C"

import (
	"runtime/debug"
	"unsafe"

	"github.com/trapeze-nic/trapeze/via"
)

// localAddress returns where the program may read the NIC's address until the handle is
// closed; nil if it is.
func (n *nic) localAddress(mac via.MAC) *C.VIP_UINT8 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	if n.address == 0 {
		n.address = uintptr(C.CBytes(mac[:]))
	}
	return (*C.VIP_UINT8)(outside(n.address))
}

// freeAddress ends that.
func (n *nic) freeAddress() {
	n.mu.Lock()
	defer n.mu.Unlock()
	C.free(outside(n.address))
	n.address = 0
}

// outside is a pointer to memory that is not Go's: nothing moves or frees it.
func outside(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// readAddress copies a network address: the NIC, and the discriminator.
func readAddress(a *C.VIP_NET_ADDRESS) (mac via.MAC, discriminator string, err error) {
	if a == nil || int(a.HostAddressLen) != len(mac) || a.DiscriminatorLen > via.MaxDiscriminator {
		return mac, "", via.ErrInvalidParameter
	}
	b := C.GoBytes(unsafe.Pointer(&a.HostAddress), C.int(len(mac))+C.int(a.DiscriminatorLen))
	copy(mac[:], b)
	return mac, string(b[len(mac):]), nil
}

// room is where a program wants an address, and how long a host address and a discriminator
// it takes there.
type room struct {
	address             *C.VIP_NET_ADDRESS
	host, discriminator int
}

// roomFor finds out what room a program has for an address: what the lengths in it say, a
// host address of zero being one of the NIC's. If both are zero it has room for any. Some
// programs say nothing and do not look at what they get, so that less room is no error.
func roomFor(a *C.VIP_NET_ADDRESS) room {
	r := room{a, min(int(a.HostAddressLen), len(via.MAC{})), int(a.DiscriminatorLen)}
	switch {
	case r.host > 0 && r.host < len(via.MAC{}):
		r.discriminator = 0 // it would stand behind what is cut
	case r.host == 0 && r.discriminator == 0:
		r.host, r.discriminator = len(via.MAC{}), via.MaxDiscriminator
	case r.host == 0:
		r.host = len(via.MAC{})
	}
	return r
}

// fill writes an address, for whose host there must be room.
func (r room) fill(find func() (via.Address, error)) error {
	if r.host != len(via.MAC{}) {
		return via.ErrInvalidParameter
	}
	a, err := find()
	if err == nil {
		r.write(a.MAC, a.Discriminator)
	}
	return err
}

// write writes of an address what there is room for.
func (r room) write(mac via.MAC, discriminator string) {
	a := r.address
	discriminator = discriminator[:min(len(discriminator), r.discriminator)]
	a.HostAddressLen, a.DiscriminatorLen = C.VIP_UINT16(r.host), C.VIP_UINT16(len(discriminator))
	b := unsafe.Slice((*byte)(unsafe.Pointer(&a.HostAddress)), r.host+len(discriminator))
	copy(b[copy(b, mac[:r.host]):], discriminator)
}

// writeName writes a string and a zero byte, for which there is room.
func writeName(to *C.VIP_CHAR, s string) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(to)), len(s)+1)
	b[copy(b, s)] = 0
}

// No process has memory below page or from topOfMemory on.
const topOfMemory = 1 << 56

//export trapezeRegisterMem
func trapezeRegisterMem(name, address C.uintptr_t, length C.VIP_ULONG, tag C.uintptr_t, write, read C.int) (C.int, C.uint32_t) {
	n := nics.find(handle(name))
	start, size := uintptr(address), uintptr(length)
	if n == nil || start < page || start > topOfMemory || size == 0 || size > topOfMemory-start {
		return C.VIP_INVALID_PARAMETER, 0
	}
	r, err := n.register(unsafe.Slice((*byte)(outside(start)), int(size)), memoryAttributes{handle(tag), write != 0, read != 0})
	if err != nil {
		return code(err), 0
	}
	return C.VIP_SUCCESS, C.uint32_t(r.handle)
}

// completion is a VIP_CQ_COMPLETION whose handle and pointer are numbers here.
type completion struct {
	vi, descriptor uintptr
	receive, code  int32
}

// The compiler refuses a layout that is not that of C.
var _ = [1]struct{}{}[unsafe.Sizeof(completion{})-C.sizeof_VIP_CQ_COMPLETION]

// trapezeCQPoll writes up to count completions to memory of the program, and returns how many.
//
//export trapezeCQPoll
func trapezeCQPoll(name, into C.uintptr_t, count C.VIP_ULONG) (r C.int, taken C.VIP_ULONG) {
	defer unmapped(&r)
	debug.SetPanicOnFault(true)
	c := cqs.find(handle(name))
	if c == nil || uintptr(into) < page || uintptr(into) > topOfMemory || count > topOfMemory/C.sizeof_VIP_CQ_COMPLETION {
		return C.VIP_INVALID_PARAMETER, 0
	}
	room := unsafe.Slice((*completion)(outside(uintptr(into))), int(count))
	for taken < count {
		e, err := c.via.Ready()
		if err == via.ErrNotDone && taken == 0 {
			e, err = c.via.Done()
		}
		if err != nil && taken > 0 {
			return C.VIP_SUCCESS, taken // the next call says the reason
		}
		if err == via.ErrNotDone {
			return C.VIP_NOT_DONE, 0
		}
		if err != nil {
			return code(err), 0
		}
		v := c.owner(e.VI)
		if v == nil {
			continue // it is being destroyed
		}
		q := &v.send
		if e.Queue == via.RecvQueue {
			q = &v.recv
		}
		result, at := from(q.done())
		room[taken] = completion{uintptr(v.name), uintptr(at), int32(truth(e.Queue == via.RecvQueue)), int32(result)}
		taken++
	}
	return C.VIP_SUCCESS, taken
}
