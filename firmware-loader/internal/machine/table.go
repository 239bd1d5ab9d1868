package machine

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// table finds the entries of a hash map. Entries do not move while they live: a
// program may hold the address of a value across other operations. So what is open
// addressed (linear probing, at most half full, deletion by shifting back) is an
// index of entry numbers. Its parts, little-endian, one after the other, from
// zeros:
//
//	header   64 bytes: how many entries were ever used, first free entry + 1
//	index    a power of two, at least twice the entries, of 8 bytes: entry + 1 or 0
//	         for none, low half of the key's hash
//	states   4 bytes for each entry: inUse, or next free entry + 1
//	keys     for each entry, padded to 8 bytes
//
// The values follow. That is the storage of SPEC.md 14.5, which images reserve.
type table struct {
	entries   uint32
	keySize   uint32
	keyStride uint32
	mask      uint32 // number of slots of the index - 1
	header    []byte
	index     []byte
	states    []byte
	keys      []byte
}

const (
	tableHeader = 64
	slotSize    = 8
	stateSize   = 4
	inUse       = 1 << 31

	// In the header.
	usedOffset = 0
	freeOffset = 4
)

// newTable lays a table out in memory, which is zero, and returns what is left of
// it for the values.
func newTable(spec abi.Map, memory []byte) (t table, values []byte) {
	slots := flat.HashBuckets(spec.Entries)
	t = table{entries: spec.Entries, keySize: spec.Key, keyStride: uint32(Padded(spec.Key)), mask: uint32(slots - 1)}
	for _, part := range []struct {
		bytes *[]byte
		size  uint64
	}{
		{&t.header, tableHeader}, {&t.index, slotSize * slots},
		{&t.states, Padded(stateSize * spec.Entries)}, {&t.keys, Padded(spec.Key) * uint64(spec.Entries)},
	} {
		*part.bytes, memory = memory[:part.size:part.size], memory[part.size:]
	}
	return t, memory
}

func (t *table) hash(key []byte) uint32 { return uint32(maphash.Bytes(seed, key)) }

// slot returns what a slot of the index says. The entry is below t.entries, as
// memory that the host can write may say anything; ok is false for an empty slot.
func (t *table) slot(i uint32) (entry, hash uint32, ok bool) {
	s := binary.LittleEndian.Uint64(t.index[uint64(i)*slotSize:])
	entry = uint32(s) - 1
	return entry, uint32(s >> 32), entry < t.entries
}

func (t *table) setSlot(i, entry, hash uint32) {
	binary.LittleEndian.PutUint64(t.index[uint64(i)*slotSize:], uint64(hash)<<32|uint64(entry+1))
}

func (t *table) key(entry uint32) []byte {
	at := uint64(entry) * uint64(t.keyStride)
	return t.keys[at : at+uint64(t.keySize)]
}

func (t *table) find(key []byte, hash uint32) (entry uint32, ok bool) {
	_, entry, ok = t.search(key, hash)
	return entry, ok
}

// search returns the slot and the entry of a key, or the slot where it would go.
func (t *table) search(key []byte, hash uint32) (i, entry uint32, ok bool) {
	i = hash & t.mask
	// No more rounds than slots: the host may have filled the index.
	for range t.mask {
		entry, h, used := t.slot(i)
		if !used {
			return i, 0, false
		}
		if h == hash && bytes.Equal(t.key(entry), key) {
			return i, entry, true
		}
		i = (i + 1) & t.mask
	}
	return i, 0, false
}

// insert makes an entry for a key that is not there. ok is false if the table is
// full.
func (t *table) insert(key []byte, hash uint32) (entry uint32, ok bool) {
	i, _, _ := t.search(key, hash)
	if entry, ok = t.take(); !ok {
		return 0, false
	}
	copy(t.key(entry), key)
	t.setSlot(i, entry, hash)
	return entry, true
}

// take returns an entry that is not in use: one that was freed, or else a new one.
func (t *table) take() (entry uint32, ok bool) {
	if entry = t.number(freeOffset) - 1; entry < t.entries {
		next := t.state(entry)
		if next&inUse != 0 {
			return 0, false // only the host can have done that
		}
		t.setNumber(freeOffset, next)
	} else {
		if entry = t.number(usedOffset); entry >= t.entries {
			return 0, false
		}
		t.setNumber(usedOffset, entry+1)
	}
	t.setState(entry, inUse)
	return entry, true
}

func (t *table) remove(key []byte, hash uint32) bool {
	hole, entry, ok := t.search(key, hash)
	if !ok {
		return false
	}
	t.setState(entry, t.number(freeOffset))
	t.setNumber(freeOffset, entry+1)
	// What stands behind the hole moves into it if it was to stand there or before.
	i := hole
	for range t.mask {
		i = (i + 1) & t.mask
		e, h, used := t.slot(i)
		if !used {
			break
		}
		if (i-h)&t.mask >= (i-hole)&t.mask {
			t.setSlot(hole, e, h)
			hole = i
		}
	}
	binary.LittleEndian.PutUint64(t.index[uint64(hole)*slotSize:], 0)
	return true
}

// next stores the key of the first entry from start on that is in use.
func (t *table) next(start uint32, key []byte) Errno {
	for entry := start; entry < min(t.number(usedOffset), t.entries); entry++ {
		if t.state(entry)&inUse != 0 {
			copy(key, t.key(entry))
			return 0
		}
	}
	return ErrNoKey
}

func (t *table) number(at int) uint32       { return binary.LittleEndian.Uint32(t.header[at:]) }
func (t *table) setNumber(at int, v uint32) { binary.LittleEndian.PutUint32(t.header[at:], v) }

func (t *table) state(entry uint32) uint32 {
	return binary.LittleEndian.Uint32(t.states[uint64(entry)*stateSize:])
}

func (t *table) setState(entry, v uint32) {
	binary.LittleEndian.PutUint32(t.states[uint64(entry)*stateSize:], v)
}
