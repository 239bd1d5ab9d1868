package concrete

import (
	"encoding/binary"
	"fmt"
)

// region is memory that a program may access.
type region struct {
	name     string
	base     uint64
	bytes    []byte
	written  []bool // nil: all of it
	readOnly bool
}

// access returns the bytes at an address, or says why there are none.
func (m *Machine) access(address uint64, size int, store bool) ([]byte, error) {
	for _, r := range m.regions {
		off := address - r.base
		if off >= uint64(len(r.bytes)) || off+uint64(size) > uint64(len(r.bytes)) {
			continue
		}
		if store && r.readOnly {
			return nil, fmt.Errorf("store of %d bytes at %d of %s, which is read only", size, off, r.name)
		}
		for i := range r.written {
			if inside := uint64(i) >= off && uint64(i) < off+uint64(size); inside && store {
				r.written[i] = true
			} else if inside && !r.written[i] {
				return nil, fmt.Errorf("load of %d bytes at %d of %s, of which %d was never written", size, off, r.name, i)
			}
		}
		return r.bytes[off : off+uint64(size)], nil
	}
	return nil, fmt.Errorf("access of %d bytes at %#x, where there is nothing", size, address)
}

func read(b []byte) uint64 {
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:])
}

func write(b []byte, v uint64) {
	var wide [8]byte
	binary.LittleEndian.PutUint64(wide[:], v)
	copy(b, wide[:])
}
