// Command vipl is a C library: libvipl.so.1, VIA's own interface (vipl.h) over package
// via. The script build makes it with -buildmode=c-shared; README.md says how it is used.
//
// The functions of vipl.h are in vipl.c. They check pointers and call the functions that
// export_*.go gives to C, which look handles up, and turn arguments, errors and
// attributes into those of package via and back. What is behind handles is in nic.go,
// vi.go, cq.go and memory.go, which know nothing of C.
package main

import (
	// Make "emu:", "eth:", "pci:" and "vfio-user:" addresses known.
	_ "github.com/trapeze-nic/trapeze/emulator"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	_ "github.com/trapeze-nic/trapeze/vfio/kernel"
	_ "github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// main is not called: the library has no main function of its own.
func main() {}
