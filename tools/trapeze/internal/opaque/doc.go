// Package opaque reads images of processors that we do not know: raw segments that
// a manifest in TOML puts to addresses of a slot. They are loaded, verified and
// rolled back as our own are; what they do is their vendor's business.
//
//	name = "acme-offload"
//	version = "2.1"
//	devices = ["15b3:1017"]         # PCI vendor:device, or ["any"]
//	entry = 0x400                   # where the processor starts
//	ready = 0x59444552              # what PROC_READY reads once it runs
//	sram = 0x20000                  # bytes of the slot that it needs; optional
//
//	[[segments]]
//	file = "text.bin"               # beside the manifest or below
//	address = 0x400
//	sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//
//	[signature]                     # 'trapeze fw sign' adds it
//	key = "0123456789abcdef"
//	value = "..."
//
// Addresses count from the start of the slot.
package opaque
