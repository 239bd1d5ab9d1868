// Package abi is the contract between control programs and the NIC processor
// that runs them: hooks, their contexts and answers, helpers, maps and limits.
// descriptors/SPEC.md section 14 states the same for those who build the
// processor; /firmware-loader/internal/images has programs to learn from.
//
// Those who write programs in C include the header beside the images, and those who make
// them in Go begin with [Hook] and [Map].
//
// Programs are BPF programs (RFC 9669). A program is entered with the address of
// its context in R1 and answers in R0. The contexts of frame hooks have the shape
// of the Linux kernel's struct xdp_md as far as they go (linux/bpf.h), so that the
// kernel's verifier and clang's habits apply to them.
package abi

import "fmt"

// Hook is a place at which the NIC asks a program.
type Hook uint8

// Hooks in the order of an image's hook table.
const (
	// PulseTx: how many bytes of a frame may the idle netTx controller move now?
	PulseTx Hook = iota
	// PulseRx: the same for hostRcv.
	PulseRx
	// DemuxRx: which receive queue, and which entry of its payload table, is a
	// frame that has arrived for?
	DemuxRx
	// FilterTx: what happens to a frame before it is sent?
	FilterTx
	// FilterRx: what happens to a frame that has arrived, before it is demultiplexed?
	FilterRx
	Hooks // how many there are
)

var hookNames = [Hooks]string{"pulse/tx", "pulse/rx", "demux/rx", "filter/tx", "filter/rx"}

// String returns the name of the ELF section that holds the hook's program.
func (h Hook) String() string {
	if h < Hooks {
		return hookNames[h]
	}
	return fmt.Sprintf("hook %d", uint8(h))
}

// ParseHook returns the hook whose section has that name.
func ParseHook(section string) (Hook, bool) {
	for h, n := range hookNames {
		if n == section {
			return Hook(h), true
		}
	}
	return 0, false
}

// IsPulse reports whether the hook is asked about transfers rather than frames.
func (h Hook) IsPulse() bool { return h == PulseTx || h == PulseRx }

// Budget returns how many instructions a run of the hook's program may take at
// worst. A pulse is decided for every transfer, a frame is looked at once.
func (h Hook) Budget() int {
	if h.IsPulse() {
		return PulseBudget
	}
	return FrameBudget
}

// Version is the ABI that this package describes, major<<16 | minor. A processor
// runs images of its own major version and of a minor version up to its own.
const Version uint32 = 1 << 16

// Limits of an image. They are ours: small enough that a check takes
// milliseconds, large enough for the programs that we know.
const (
	// PulseBudget and FrameBudget are the instructions of a run at worst.
	PulseBudget = 512
	FrameBudget = 8192
	// MaxInstructions of a program, in 8-byte slots.
	MaxInstructions = 4096
	// StackSize in bytes, below R10, as in the Linux kernel (MAX_BPF_STACK).
	StackSize = 512
	// MaxMaps of an image, read-only data and global variables included.
	MaxMaps = 16
	// MaxKey and MaxValue are the sizes in bytes of a map's keys and values.
	MaxKey   = 64
	MaxValue = 64 << 10
	// MaxEntries of a map.
	MaxEntries = 1 << 16
	// MaxNameLength, MaxVersionLength, MaxBuildID in bytes.
	MaxNameLength    = 32
	MaxVersionLength = 16
	MaxBuildID       = 20
)
