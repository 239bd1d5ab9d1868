package driver

import "encoding/binary"

// Store8 stores a byte at offset, see WriteAt.
func (e *Eager) Store8(offset int, v uint8) error {
	return e.storeSmall(offset, 1, uint64(v))
}

// Store16 stores 16 bits at offset, little-endian, see WriteAt.
func (e *Eager) Store16(offset int, v uint16) error {
	return e.storeSmall(offset, 2, uint64(v))
}

// Store32 stores 32 bits at offset, little-endian, see WriteAt.
func (e *Eager) Store32(offset int, v uint32) error {
	return e.storeSmall(offset, 4, uint64(v))
}

// Store64 stores 64 bits at offset, little-endian, see WriteAt.
func (e *Eager) Store64(offset int, v uint64) error {
	return e.storeSmall(offset, 8, v)
}

func (e *Eager) storeSmall(offset, n int, v uint64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	e.mu.Lock()
	err := e.store(int64(offset), b[:n])
	e.mu.Unlock()
	_, err = e.wrote(n, err)
	return err
}
