package main

// #include "vipl.h"
import "C"

import "github.com/trapeze-nic/trapeze/via"

//export trapezeNSInit
func trapezeNSInit(name C.uintptr_t, file *C.VIP_CHAR) C.int {
	return on(&nics, name, func(n *nic) error {
		path := ""
		if file != nil {
			path = C.GoString(file)
		}
		return n.device.via.OpenNames(path)
	})
}

//export trapezeNSShutdown
func trapezeNSShutdown(name C.uintptr_t) C.int {
	return on(&nics, name, func(n *nic) error { n.device.via.CloseNames(); return nil })
}

//export trapezeNSGetHostByName
func trapezeNSGetHostByName(name C.uintptr_t, host *C.VIP_CHAR, address *C.VIP_NET_ADDRESS, index C.VIP_ULONG) C.int {
	return on(&nics, name, func(n *nic) error {
		const most = 1 << 20 // addresses of a host
		return roomFor(address).fill(func() (via.Address, error) {
			return n.device.via.HostByName(n.ctx, C.GoString(host), int(min(index, most)))
		})
	})
}

// trapezeNSGetHostByAddr writes the name and a zero byte into room for *length bytes, and
// says in *length how long the name is.
//
//export trapezeNSGetHostByAddr
func trapezeNSGetHostByAddr(name C.uintptr_t, address *C.VIP_NET_ADDRESS, host *C.VIP_CHAR, length *C.VIP_ULONG) C.int {
	return on(&nics, name, func(n *nic) error {
		mac, discriminator, err := readAddress(address)
		if err != nil {
			return err
		}
		found, err := n.device.via.HostByAddress(via.Address{MAC: mac, Discriminator: discriminator})
		if err != nil {
			return err
		}
		room := *length
		*length = C.VIP_ULONG(len(found))
		if room <= C.VIP_ULONG(len(found)) {
			return via.ErrInvalidParameter
		}
		writeName(host, found)
		return nil
	})
}

// trapezeDiscover returns the hop limit, and how many addresses there are.
//
//export trapezeDiscover
func trapezeDiscover(name C.uintptr_t) (result C.int, hops, addresses C.VIP_ULONG) {
	result = on(&nics, name, func(n *nic) error {
		d, err := n.device.via.Discovery()
		hops, addresses = C.VIP_ULONG(d.HopLimit), C.VIP_ULONG(len(d.Addresses))
		return err
	})
	return result, hops, addresses
}

// trapezeDiscovered writes one of the addresses.
//
//export trapezeDiscovered
func trapezeDiscovered(name C.uintptr_t, index C.VIP_ULONG, address *C.VIP_NET_ADDRESS) C.int {
	return on(&nics, name, func(n *nic) error {
		if address == nil {
			return via.ErrInvalidParameter
		}
		return roomFor(address).fill(func() (via.Address, error) {
			d, err := n.device.via.Discovery()
			if err == nil && index >= C.VIP_ULONG(len(d.Addresses)) {
				err = via.ErrInvalidParameter
			}
			if err != nil {
				return via.Address{}, err
			}
			return d.Addresses[index], nil
		})
	})
}
