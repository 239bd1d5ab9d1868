package datasheet

import "structs"

// The flat image of a control program, as it stands in SRAM (SPEC.md 14.2).
const (
	ImageHeaderSize = 192
	ImageHookSize   = 16
	ImageMapSize    = 64
	// ImageHookCount is the number of hooks, used or not.
	ImageHookCount = 5
	// ImageDigestOffset is where in the header the digest stands.
	ImageDigestOffset = 0x70
	// ImageAlign is the alignment in bytes of programs and contents,
	// ImageStorageAlign that of the storage of maps.
	ImageAlign        = 8
	ImageStorageAlign = 64
)

// ImageMagic reads "TRPI" in memory order.
const ImageMagic uint32 = 0x49505254

// ImageHeader starts a flat image.
type ImageHeader struct {
	_     structs.HostLayout
	Magic uint32
	// ABI that the programs were made for, major<<16 | minor.
	ABI uint32
	// Size of the image in bytes, header included, a multiple of ImageAlign.
	Size uint32
	// SRAM is the part of its slot that the image needs when it runs, in bytes: the
	// image, then the storage of its maps.
	SRAM uint32
	// Device is PCI vendor<<16 | device of the NICs that it is for; 0 for any.
	Device uint32
	// HookCount is ImageHookCount.
	HookCount   uint16
	MapCount    uint16
	HooksOffset uint32
	MapsOffset  uint32
	// Name and Version are text, padded with zeros.
	Name    [32]byte
	Version [16]byte
	BuildID [20]byte
	_       uint32
	_       uint64
	// Digest is the SHA-256 of Size bytes in which this field is zero.
	Digest [32]byte
	_      [6]uint64
}

// ImageHook is an entry of the hook table.
type ImageHook struct {
	_ structs.HostLayout
	// Offset of the program in the image; 0 if the hook is not used.
	Offset uint32
	// Instructions of 8 bytes each.
	Instructions uint32
	_            uint64
}

// ImageMap is an entry of the map table.
type ImageMap struct {
	_ structs.HostLayout
	// Name is text, padded with zeros.
	Name [32]byte
	// Type, Key, Value, Entries and Flags as in SPEC.md 14.5.
	Type    uint32
	Key     uint32
	Value   uint32
	Entries uint32
	Flags   uint32
	// ContentsOffset of the initial bytes in the image; 0 for zeros.
	ContentsOffset uint32
	ContentsSize   uint32
	// Storage is the offset of the map's memory from the start of the image.
	Storage uint32
}
