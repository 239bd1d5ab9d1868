// Package hostpci shows the PCI functions of this host and moves them between
// the kernel's own drivers and VFIO.
//
// Everything is read below a root folder, "/" for this host. A folder with a
// recorded copy of sys, proc and dev shows another one.
package hostpci
