package machine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Flags of updates (linux/bpf.h).
const (
	Any     uint64 = 0
	IfNew   uint64 = 1 // BPF_NOEXIST
	IfThere uint64 = 2 // BPF_EXIST
)

// Map is a map of the image that runs. All of it is in the memory given to NewMap,
// in which the host can write at any time: numbers found there are checked before
// they are used.
type Map struct {
	spec   abi.Map
	memory []byte // all of it
	values []byte // by entry
	stride uint32 // bytes from one value to the next
	table  table  // of hash maps
}

// NewMap makes a map with its initial contents in memory, of which it uses
// StorageSize bytes. Errors wrap ErrMap and ErrStorage.
func NewMap(spec abi.Map, memory []byte) (*Map, error) {
	need, err := StorageSize(spec)
	if err != nil {
		return nil, err
	}
	if uint64(len(memory)) < need {
		return nil, fmt.Errorf("map %q: %w: %d bytes, it needs %d", spec.Name, ErrStorage, len(memory), need)
	}
	memory = memory[:need]
	clear(memory)
	m := &Map{spec: spec, memory: memory, stride: uint32(Padded(spec.Value))}
	if spec.Type == abi.MapHash {
		m.table, m.values = newTable(spec, memory)
		return m, nil
	}
	m.values = memory
	for at, c := 0, spec.Contents; len(c) > 0; at += int(m.stride) {
		n := min(len(c), int(spec.Value))
		copy(memory[at:], c[:n])
		c = c[n:]
	}
	return m, nil
}

// Contents returns a copy of all that the map holds, for Restore.
func (m *Map) Contents() []byte { return bytes.Clone(m.memory) }

// Restore puts contents of a map with the same spec into a new one that programs
// may write; others are as their image has them.
func (m *Map) Restore(contents []byte) {
	if !m.readOnly() {
		copy(m.memory, contents)
	}
}

// StorageSize returns how many bytes of memory a map needs: those that images reserve.
// Errors wrap ErrMap.
func StorageSize(spec abi.Map) (uint64, error) {
	size, err := flat.StorageSize(spec)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrMap, err)
	}
	if size > maxStorage {
		return 0, fmt.Errorf("map %q: %w: %d bytes; allowed: %d", spec.Name, ErrMap, size, maxStorage)
	}
	return size, nil
}

// maxStorage is the largest map in bytes that a program can address.
const maxStorage = offsetMask

// Padded rounds a size up to a multiple of 8.
func Padded(n uint32) uint64 { return (uint64(n) + 7) &^ 7 }

// Spec returns what the map was made from.
func (m *Map) Spec() abi.Map { return m.spec }

func (m *Map) readOnly() bool { return m.spec.Flags&abi.MapReadOnly != 0 }

// sizes checks arguments from outside of a program.
func (m *Map) sizes(key, value int) error {
	if key != int(m.spec.Key) || value != int(m.spec.Value) {
		return fmt.Errorf("map %q: %w: key of %d bytes, value of %d; allowed: %d and %d",
			m.spec.Name, ErrInvalid, key, value, m.spec.Key, m.spec.Value)
	}
	return nil
}

// Lookup returns the value of a key. It is valid until the entry is deleted, and
// storing to it changes the map. Errors: ErrNoKey, ErrInvalid.
func (m *Map) Lookup(key []byte) ([]byte, error) {
	if err := m.sizes(len(key), int(m.spec.Value)); err != nil {
		return nil, err
	}
	entry, ok := m.find(key)
	if !ok {
		return nil, ErrNoKey
	}
	return m.value(entry), nil
}

// Update stores the value of a key. Flags are Any, IfNew or IfThere. Errors, which
// change nothing: ErrKeyExists, ErrNoKey, ErrFull, ErrInvalid, ErrReadOnly.
func (m *Map) Update(key, value []byte, flags uint64) error {
	if err := m.sizes(len(key), len(value)); err != nil {
		return err
	}
	if m.readOnly() {
		return ErrReadOnly
	}
	return failure(m.put(key, value, flags))
}

// Delete removes a key. Errors: ErrNoKey, ErrInvalid, ErrReadOnly.
func (m *Map) Delete(key []byte) error {
	if err := m.sizes(len(key), int(m.spec.Value)); err != nil {
		return err
	}
	if m.readOnly() {
		return ErrReadOnly
	}
	return failure(m.remove(key))
}

// Next stores the key after a given one into next: the first one after nil, or
// after a key that is not in the map. Keys that are in the map from start to end of
// a walk are visited once. Errors: ErrNoKey after the last, ErrInvalid.
func (m *Map) Next(key, next []byte) error {
	if err := m.sizes(len(next), int(m.spec.Value)); err != nil {
		return err
	}
	start := uint32(0)
	if key != nil {
		if err := m.sizes(len(key), int(m.spec.Value)); err != nil {
			return err
		}
		if entry, ok := m.find(key); ok {
			start = entry + 1
		}
	}
	if m.spec.Type == abi.MapHash {
		return failure(m.table.next(start, next))
	}
	if start >= m.spec.Entries {
		return ErrNoKey
	}
	binary.LittleEndian.PutUint32(next, start)
	return nil
}

func failure(e Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func (m *Map) value(entry uint32) []byte {
	at := uint64(entry) * uint64(m.stride)
	return m.values[at : at+uint64(m.spec.Value) : at+uint64(m.spec.Value)]
}

func (m *Map) find(key []byte) (entry uint32, ok bool) {
	if m.spec.Type == abi.MapArray {
		entry = binary.LittleEndian.Uint32(key)
		return entry, entry < m.spec.Entries
	}
	return m.table.find(key, m.table.hash(key))
}

// put stores a value: what the kernel's array_map_update_elem and
// htab_map_update_elem do (kernel/bpf/arraymap.c, hashtab.c). The value may be one
// of the map's own.
func (m *Map) put(key, value []byte, flags uint64) Errno {
	if flags > IfThere {
		return ErrInvalid
	}
	entry, ok := m.find(key)
	switch {
	case !ok && m.spec.Type == abi.MapArray:
		return ErrFull
	case ok && flags == IfNew:
		return ErrKeyExists
	case !ok && flags == IfThere:
		return ErrNoKey
	case !ok:
		if entry, ok = m.table.insert(key, m.table.hash(key)); !ok {
			return ErrFull
		}
	}
	copy(m.value(entry), value)
	return 0
}

func (m *Map) remove(key []byte) Errno {
	if m.spec.Type == abi.MapArray {
		return ErrInvalid
	}
	if !m.table.remove(key, m.table.hash(key)) {
		return ErrNoKey
	}
	return 0
}

// seed makes the places of keys in tables unpredictable: no program that chooses the
// keys, such as the sender of frames, can have them collide.
var seed = maphash.MakeSeed()
