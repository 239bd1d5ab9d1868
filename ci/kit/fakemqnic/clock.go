package fakemqnic

// Registers of the clock's block.
const (
	live, snapshot                     = 0x14, 0x30
	offsetNS, setNS, setSeconds, setUp = 0x50, 0x54, 0x58, 0x5c
)

// readClock reads a register of a block. Those of the clock tell its time.
func (d *Device) readClock(offset uint64) uint32 {
	ns, seconds := uint32(d.Time%1e9), uint64(d.Time/1e9)
	switch offset {
	case PHC + snapshot:
		d.Set(PHC+snapshot+4, ns)
		d.Set(PHC+snapshot+8, uint32(seconds))
		d.Set(PHC+snapshot+12, uint32(seconds>>32))
	case PHC + live:
		return ns
	case PHC + live + 4:
		return uint32(seconds)
	case PHC + live + 8:
		return uint32(seconds >> 32)
	}
	return d.Get(offset)
}

// writeClock is a write to a register of a block, of which some set the clock.
func (d *Device) writeClock(offset uint64, v uint32) {
	switch offset {
	case PHC + offsetNS:
		d.Time += int64(int32(v))
	case PHC + setUp:
		d.Time = (int64(v)<<32|int64(d.Get(PHC+setSeconds)))*1e9 + int64(d.Get(PHC+setNS))
	}
}
