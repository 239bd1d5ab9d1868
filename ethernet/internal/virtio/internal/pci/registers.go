package pci

import (
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// Offsets in the common configuration ("Common configuration structure layout").
const (
	deviceFeatureSelect = 0  // 32 bits
	deviceFeature       = 4  // 32 bits
	driverFeatureSelect = 8  // 32 bits
	driverFeature       = 12 // 32 bits
	configVector        = 16 // 16 bits
	numQueues           = 18 // 16 bits
	deviceStatus        = 20 // 8 bits
	configGeneration    = 21 // 8 bits
	queueSelect         = 22 // 16 bits
	queueSize           = 24 // 16 bits
	queueVector         = 26 // 16 bits
	queueEnable         = 28 // 16 bits
	queueNotifyOff      = 30 // 16 bits
	queueDescriptor     = 32 // 64 bits, as two of 32
	queueDriver         = 40 // the same
	queueDevice         = 48 // the same
	queueReset          = 58 // 16 bits
)

// noVector in a vector register asks for no interrupts (VIRTIO_MSI_NO_VECTOR).
const noVector = 0xffff

// read reads a field of the common configuration, of 1, 2 or 4 bytes. Each field has to be
// accessed at its own width.
func (d *Device) read(offset uint64, size int) (uint32, error) {
	var b [4]byte
	err := d.function.Device().ReadRegion(d.layout.common.bar, d.layout.common.offset+offset, b[:size])
	return binary.LittleEndian.Uint32(b[:]), err
}

// write writes a field.
func (d *Device) write(offset uint64, size int, v uint32) error {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	return d.function.Device().WriteRegion(d.layout.common.bar, d.layout.common.offset+offset, b[:size])
}

// writeAll writes fields, one after the other, until one fails.
func (d *Device) writeAll(fields ...field) error {
	for _, f := range fields {
		if err := d.write(f.offset, f.size, f.value); err != nil {
			return err
		}
	}
	return nil
}

type field struct {
	offset uint64
	size   int
	value  uint32
}

// address is a field of 64 bits.
func address(offset, v uint64) []field {
	return []field{{offset, 4, uint32(v)}, {offset + 4, 4, uint32(v >> 32)}}
}

// status reads the device status. It fails with ErrDeviceGone if it reads as all ones.
func (d *Device) status() (uint32, error) {
	v, err := d.read(deviceStatus, 1)
	if err == nil && v == 0xff {
		err = fmt.Errorf("%w: its status reads as all ones", ethernet.ErrDeviceGone)
	}
	return v, err
}
