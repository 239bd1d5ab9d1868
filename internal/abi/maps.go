package abi

import "fmt"

// MapType is a kind of map. The values are those of enum bpf_map_type
// (linux/bpf.h).
type MapType uint32

// Map types.
const (
	MapHash  MapType = 1
	MapArray MapType = 2
)

func (t MapType) String() string {
	switch t {
	case MapHash:
		return "hash"
	case MapArray:
		return "array"
	}
	return fmt.Sprintf("map type %d", uint32(t))
}

// Flags of maps. The value is that of linux/bpf.h.
const (
	// MapReadOnly (BPF_F_RDONLY_PROG): programs do not write. Of .rodata.
	MapReadOnly uint32 = 1 << 7
)

// Map is a map of an image. Array maps have keys of 4 bytes. The global variables
// of a C program are array maps with one entry, named .rodata, .data or .bss.
type Map struct {
	Name    string // 1 to MaxNameLength bytes
	Type    MapType
	Key     uint32 // bytes
	Value   uint32 // bytes
	Entries uint32
	Flags   uint32
	// Contents are the initial bytes of an array map, entry after entry without
	// gaps; nil = zeros. len(Contents) is at most Value*Entries.
	Contents []byte
}

// Helper is a function of the processor that programs call. Numbers and meaning are
// those of the Linux kernel's helpers (linux/bpf.h).
type Helper int32

// Helpers.
const (
	// HelperMapLookup(map, key *) = value * or 0.
	HelperMapLookup Helper = 1
	// HelperMapUpdate(map, key *, value *, flags) = 0 or a negative error number.
	// flags: 0 any, 1 only if absent, 2 only if present.
	HelperMapUpdate Helper = 2
	// HelperMapDelete(map, key *) = 0 or a negative error number.
	HelperMapDelete Helper = 3
	// HelperTime() = nanoseconds of the device's clock.
	HelperTime Helper = 5
)

func (h Helper) String() string {
	switch h {
	case HelperMapLookup:
		return "map_lookup_elem"
	case HelperMapUpdate:
		return "map_update_elem"
	case HelperMapDelete:
		return "map_delete_elem"
	case HelperTime:
		return "ktime_get_ns"
	}
	return fmt.Sprintf("helper %d", int32(h))
}
