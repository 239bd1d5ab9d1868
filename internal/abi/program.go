package abi

import "github.com/cilium/ebpf/asm"

// Program is a linked program: what the checker checks and the processor runs.
//
// References to maps are 64-bit immediate loads whose source register is 1
// (BPF_PSEUDO_MAP_FD: the map itself, Constant = index into Maps) or 2
// (BPF_PSEUDO_MAP_VALUE: an address in the only or first entry of an array map,
// Constant = index | offset<<32). Calls are calls of helpers (source register 0).
// Jumps are by offset; there are no symbolic references left.
type Program struct {
	Hook         Hook
	Instructions asm.Instructions
	Maps         []Map
}
