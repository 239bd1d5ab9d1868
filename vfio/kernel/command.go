package kernel

import (
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/vfio"
)

// setCommand sets and clears bits of the command register. The caller holds
// life.
func (d *Device) setCommand(set, clear uint16) error {
	d.command.Lock()
	defer d.command.Unlock()
	var b [2]byte
	if err := d.readRegion(vfio.RegionConfig, vfio.ConfigCommand, b[:]); err != nil {
		return err
	}
	v := binary.LittleEndian.Uint16(b[:])
	if v == 0xffff {
		return d.fail("read the command register of", vfio.ErrDeviceGone, d.host.hostHint(d.fn.Address))
	}
	if v&^clear|set == v {
		return nil
	}
	binary.LittleEndian.PutUint16(b[:], v&^clear|set)
	return d.writeRegion(vfio.RegionConfig, vfio.ConfigCommand, b[:])
}
