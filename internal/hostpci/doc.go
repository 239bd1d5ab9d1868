// Package hostpci shows the PCI functions of this host and moves them between
// the kernel's own drivers and VFIO.
//
// [Functions] lists the NICs, [Uses] says what the host uses one for, and [Bind] gives it to
// VFIO, unless it is in use. The commands 'trapeze list' and 'trapeze bind' do the same.
//
// Everything is read below a root folder, "/" for this host. A folder with a
// recorded copy of sys, proc and dev shows another one.
package hostpci
