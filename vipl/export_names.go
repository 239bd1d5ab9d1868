package main

// #include "vipl.h"
import "C"

import "github.com/trapeze-nic/trapeze/via"

//export trapezeNSInit
func trapezeNSInit(name C.uintptr_t, file *C.VIP_CHAR) C.int {
	n := nics.find(handle(name))
	if n == nil {
		return C.VIP_INVALID_PARAMETER
	}
	path := ""
	if file != nil {
		path = C.GoString(file)
	}
	return code(n.device.via.OpenNames(path))
}

//export trapezeNSShutdown
func trapezeNSShutdown(name C.uintptr_t) C.int {
	n := nics.find(handle(name))
	if n == nil {
		return C.VIP_INVALID_PARAMETER
	}
	n.device.via.CloseNames()
	return C.VIP_SUCCESS
}

//export trapezeNSGetHostByName
func trapezeNSGetHostByName(name C.uintptr_t, host *C.VIP_CHAR, address *C.VIP_NET_ADDRESS, index C.VIP_ULONG) C.int {
	n := nics.find(handle(name))
	if n == nil {
		return C.VIP_INVALID_PARAMETER
	}
	to := roomFor(address)
	if !to.whole() {
		return C.VIP_INVALID_PARAMETER
	}
	const most = 1 << 20 // addresses of a host
	a, err := n.device.via.HostByName(n.ctx, C.GoString(host), int(min(index, most)))
	if err != nil {
		return code(err)
	}
	to.write(a.MAC, a.Discriminator)
	return C.VIP_SUCCESS
}

// trapezeNSGetHostByAddr writes the name and a zero byte into room for *length bytes, and
// says in *length how long the name is.
//
//export trapezeNSGetHostByAddr
func trapezeNSGetHostByAddr(name C.uintptr_t, address *C.VIP_NET_ADDRESS, host *C.VIP_CHAR, length *C.VIP_ULONG) C.int {
	n := nics.find(handle(name))
	if n == nil {
		return C.VIP_INVALID_PARAMETER
	}
	mac, discriminator, err := readAddress(address)
	if err != nil {
		return code(err)
	}
	found, err := n.device.via.HostByAddress(via.Address{MAC: mac, Discriminator: discriminator})
	if err != nil {
		return code(err)
	}
	room := *length
	*length = C.VIP_ULONG(len(found))
	if room <= C.VIP_ULONG(len(found)) {
		return C.VIP_INVALID_PARAMETER
	}
	writeName(host, found)
	return C.VIP_SUCCESS
}

// trapezeDiscover returns the hop limit, and how many addresses there are.
//
//export trapezeDiscover
func trapezeDiscover(name C.uintptr_t) (C.int, C.VIP_ULONG, C.VIP_ULONG) {
	n := nics.find(handle(name))
	if n == nil {
		return C.VIP_INVALID_PARAMETER, 0, 0
	}
	d, err := n.device.via.Discovery()
	return code(err), C.VIP_ULONG(d.HopLimit), C.VIP_ULONG(len(d.Addresses))
}

// trapezeDiscovered writes one of the addresses.
//
//export trapezeDiscovered
func trapezeDiscovered(name C.uintptr_t, index C.VIP_ULONG, address *C.VIP_NET_ADDRESS) C.int {
	n := nics.find(handle(name))
	if n == nil || address == nil {
		return C.VIP_INVALID_PARAMETER
	}
	d, err := n.device.via.Discovery()
	if err != nil {
		return code(err)
	}
	if index >= C.VIP_ULONG(len(d.Addresses)) {
		return C.VIP_INVALID_PARAMETER
	}
	to := roomFor(address)
	if !to.whole() {
		return C.VIP_INVALID_PARAMETER
	}
	to.write(d.Addresses[index].MAC, d.Addresses[index].Discriminator)
	return C.VIP_SUCCESS
}
