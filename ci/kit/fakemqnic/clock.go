package fakemqnic

// Registers of the clock's block.
const (
	control, live, snapshot            = 0x0c, 0x14, 0x30
	offsetNS, setNS, setSeconds, setUp = 0x50, 0x54, 0x58, 0x5c
	period, periodUp                   = 0x78, 0x7c

	setPending, offsetPending, periodPending = 1 << 24, 1 << 25, 1 << 28
)

// readClock reads a register of a block. Those of the clock tell its time. One read of the control
// register finds that what was written is pending; then the clock applies it.
func (d *Device) readClock(offset uint64) uint32 {
	ns, seconds := uint32(d.Time%1e9), uint64(d.Time/1e9)
	switch offset {
	case PHC + control:
		pending := d.Get(offset)
		d.Set(offset, 0)
		if pending&offsetPending != 0 {
			d.Time += int64(int32(d.Get(PHC+offsetNS)<<2) >> 2) // 30 bits
		}
		if pending&setPending != 0 {
			d.Time = (int64(d.Get(PHC+setUp))<<32|int64(d.Get(PHC+setSeconds)))*1e9 + int64(d.Get(PHC+setNS))
		}
		return pending
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

// dropsClock is a write to a register of a block. It returns whether the clock drops it: what was
// written before is pending.
func (d *Device) dropsClock(offset uint64) bool {
	var pending uint32
	switch offset {
	case PHC + offsetNS:
		pending = offsetPending
	case PHC + setNS, PHC + setSeconds, PHC + setUp:
		pending = setPending
	case PHC + period, PHC + periodUp:
		pending = periodPending
	}
	before := d.Get(PHC + control)
	if offset == PHC+offsetNS || offset == PHC+setUp || offset == PHC+periodUp { // these begin the change
		d.Set(PHC+control, before|pending)
	}
	return before&pending != 0
}
