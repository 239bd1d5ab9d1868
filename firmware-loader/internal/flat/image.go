package flat

import (
	"crypto/sha256"
	"math"
	"strconv"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// MaxSize of an image in bytes: more than the largest slot that we know.
const MaxSize = 1 << 20

// Image is the content of a flat image.
type Image struct {
	// ABI that the programs were made for, major<<16 | minor.
	ABI uint32
	// Device is PCI vendor<<16 | device of the NICs that the image is for; 0
	// for any.
	Device uint32
	// Name has 1 to abi.MaxNameLength and Version 1 to abi.MaxVersionLength
	// letters, digits and characters of "._-+".
	Name, Version string
	BuildID       [abi.MaxBuildID]byte
	// Programs by hook; nil for hooks that are not used.
	Programs [abi.Hooks]asm.Instructions
	Maps     []abi.Map

	// The rest is set by Decode and ignored by Encode.

	// Size of the image in bytes, SRAM what it needs of its slot when it runs.
	Size, SRAM uint32
	// Storage of each map: the offset from the start of the image of
	// StorageSize bytes.
	Storage []uint32
	Digest  [sha256.Size]byte
}

// Program returns the hook's program, and whether there is one.
func (img *Image) Program(h abi.Hook) (abi.Program, bool) {
	if h >= abi.Hooks || len(img.Programs[h]) == 0 {
		return abi.Program{}, false
	}
	return abi.Program{Hook: h, Instructions: img.Programs[h], Maps: img.Maps}, true
}

// Suits says whether a NIC can run the decoded image: its ABI, its PCI vendor<<16 |
// device, and the bytes of a slot. Errors are *Error with ErrABI, ErrDevice or ErrSRAM.
func (img *Image) Suits(version, device, slot uint32) error {
	if img.ABI>>16 != version>>16 || img.ABI > version {
		return refuse(ErrABI, "header abi", "%d.%d; the NIC has %d.%d", img.ABI>>16, img.ABI&0xffff, version>>16, version&0xffff)
	}
	if img.Device != 0 && img.Device != device {
		return refuse(ErrDevice, "header device", "%04x:%04x, the NIC is %04x:%04x",
			img.Device>>16, img.Device&0xffff, device>>16, device&0xffff)
	}
	if img.SRAM > slot {
		return refuse(ErrSRAM, "header sram", "%d bytes, a slot of the NIC has %d", img.SRAM, slot)
	}
	return nil
}

// Bytes of the storage of a hash map that are neither keys nor values (SPEC.md 14.5):
// at its start, of each bucket, and of each entry.
const (
	hashHeader = 64
	hashBucket = 8
	hashEntry  = 4
)

// HashBuckets returns the number of buckets: the least power of two that is at least
// twice the entries.
func HashBuckets(entries uint32) uint64 {
	n := uint64(2)
	for n < 2*uint64(entries) {
		n *= 2
	}
	return n
}

// StorageSize returns how many bytes of SRAM a map needs while its image runs.
// Errors are those of CheckMap.
func StorageSize(m abi.Map) (uint64, error) {
	if err := CheckMap(m); err != nil {
		return 0, err
	}
	entries := uint64(m.Entries)
	size := pad(uint64(m.Value), 8) * entries
	if m.Type == abi.MapHash {
		size += hashHeader + hashBucket*HashBuckets(m.Entries) + pad(hashEntry*entries, 8) + pad(uint64(m.Key), 8)*entries
	}
	return size, nil
}

// CheckMap checks a map against the limits of package abi. Errors are *Error
// with ErrMalformed.
func CheckMap(m abi.Map) error { return checkMap("map "+strconv.QuoteToASCII(m.Name), m) }

func checkMap(field string, m abi.Map) error {
	if err := CheckText(field+" name", m.Name, abi.MaxNameLength); err != nil {
		return err
	}
	limits := []struct {
		name            string
		value, low, top uint32
	}{
		{"key", m.Key, 1, abi.MaxKey},
		{"value", m.Value, 1, abi.MaxValue},
		{"entries", m.Entries, 1, abi.MaxEntries},
	}
	switch m.Type {
	case abi.MapArray:
		limits[0].low, limits[0].top = 4, 4
	case abi.MapHash:
		if len(m.Contents) > 0 {
			return malformed(field+" contents", "a hash map starts empty")
		}
	default:
		return malformed(field+" type", "%d; allowed: %d (hash), %d (array)", uint32(m.Type), uint32(abi.MapHash), uint32(abi.MapArray))
	}
	for _, l := range limits {
		if l.value < l.low || l.value > l.top {
			return malformed(field+" "+l.name, "%d; allowed: %d to %d", l.value, l.low, l.top)
		}
	}
	if m.Flags&^abi.MapReadOnly != 0 {
		return malformed(field+" flags", "%#x; allowed: 0, %#x (read-only)", m.Flags, abi.MapReadOnly)
	}
	if n, room := uint64(len(m.Contents)), uint64(m.Value)*uint64(m.Entries); n > room {
		return malformed(field+" contents", "%d bytes, the map holds %d", n, room)
	}
	return nil
}

// place returns where the storage of each map goes behind an image of size
// bytes, and the end of it all.
func place(size uint64, maps []abi.Map) (storage []uint32, end uint64, err error) {
	end = size
	for _, m := range maps {
		n, err := StorageSize(m)
		if err != nil {
			return nil, 0, err
		}
		at := pad(end, datasheet.ImageStorageAlign)
		if at+n > math.MaxUint32 {
			return nil, 0, refuse(ErrSRAM, "map "+strconv.QuoteToASCII(m.Name), "its storage ends at %d, more than 32 bits can say", at+n)
		}
		storage, end = append(storage, uint32(at)), at+n
	}
	return storage, end, nil
}

// pad rounds n up to a multiple of align, a power of two.
func pad(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }
