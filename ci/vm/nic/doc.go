// Package nic holds tests that run in a virtual machine and drive the emulated
// NIC, which runs outside of it behind vfio-user, through the guest's own Linux
// VFIO: the driver of this project, unchanged, on what a real kernel hands out.
// ci/vm/run starts them.
package nic
