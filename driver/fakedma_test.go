package driver_test

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// fakeBlockDMA is the device's side of the DMA block.
type fakeBlockDMA struct {
	// pulse is called with every pulse, with the device's lock held; lane is 0 for
	// transmit. The frame is the low byte of its number.
	pulse func(lane int, frame uint8, n uint32)
	// refuses says which registers a device does not take values in.
	refuses map[uint64]func(v uint32) bool
	seq     [2]datasheet.Progress
	logged  uint32
}

// addDMA gives the device a DMA block.
func (d *fakeDevice) addDMA() {
	d.block = &fakeBlockDMA{refuses: map[uint64]func(uint32) bool{}}
	d.chain(append(d.olderBlocks(), fakeBlock{datasheet.BlockDMA, datasheet.BlockVersion1, datasheet.DMAOffset, datasheet.DMASize})...)
	d.resetDMA()
}

func (d *fakeDevice) resetDMA() {
	if d.block == nil {
		return
	}
	for reg := uint64(datasheet.BlockHeaderSize); reg < datasheet.DMASize; reg += 4 {
		d.set(datasheet.DMAOffset+reg, 0)
	}
	for reg, v := range map[uint64]uint32{
		datasheet.RegDMAEngines: uint32(datasheet.DMAEngineCount),
		datasheet.RegPolicyTx:   uint32(datasheet.DMAPolicyAMP), datasheet.RegPolicyRx: uint32(datasheet.DMAPolicyAMP),
		datasheet.RegMinPulseTx: 4096, datasheet.RegMinPulseRx: 2048,
		datasheet.RegPulseDeadline: datasheet.PulseDeadlineReset,
	} {
		d.set(datasheet.DMAOffset+reg, v)
	}
}

func (d *fakeDevice) dmaRegister(reg uint64) (v uint32) {
	d.with(func() { v = d.get(datasheet.DMAOffset + reg) })
	return v
}

// writeDMA writes a register of the DMA block as a sound device does. It
// reports whether it is one.
func (d *fakeDevice) writeDMA(offset uint64, v uint32) bool {
	if d.block == nil || offset < datasheet.DMAOffset+datasheet.BlockHeaderSize || offset >= datasheet.DMAOffset+datasheet.DMASize {
		return false
	}
	reg := offset - datasheet.DMAOffset
	control := d.get(datasheet.DMAOffset + datasheet.RegDMAControl)
	const pulses = datasheet.DMAControlHostTx | datasheet.DMAControlHostRx
	if no := d.block.refuses[reg]; no != nil && no(v) {
		return true
	}
	switch reg {
	case datasheet.RegPulseTx, datasheet.RegPulseRx:
		if frame, n := datasheet.SplitPulse(v); d.block.pulse != nil {
			d.block.pulse(int(reg-datasheet.RegPulseTx)/4, frame, n)
		}
		return true
	case datasheet.RegPolicyTx, datasheet.RegPolicyRx:
		if v < uint32(datasheet.DMAPolicyStoreAndForward) || v > uint32(datasheet.DMAPolicyAuto) {
			return true
		}
	case datasheet.RegMinPulseTx, datasheet.RegMinPulseRx:
		if v < 1 || v > datasheet.MaxMinPulse {
			return true
		}
	case datasheet.RegProgressLow, datasheet.RegProgressHigh:
		if control&pulses != 0 || reg == datasheet.RegProgressLow && v%datasheet.ProgressSize != 0 {
			return true
		}
	case datasheet.RegLogBaseLow, datasheet.RegLogBaseHigh, datasheet.RegLogLog2:
		if control&datasheet.DMAControlLog != 0 {
			return true
		}
	case datasheet.RegDMAControl:
		if v&datasheet.DMAControlReserved != 0 {
			return true
		}
		if v&^control&datasheet.DMAControlLog != 0 {
			d.block.logged = 0
			for _, zero := range []uint64{datasheet.RegLogConsumer, datasheet.RegLogProducer, datasheet.RegLogLost} {
				d.set(datasheet.DMAOffset+zero, 0)
			}
		}
	case datasheet.RegPulseTimeouts, datasheet.RegPulsesRefused, datasheet.RegLogProducer, datasheet.RegLogLost, datasheet.RegDMAEngines:
		return true
	}
	d.set(offset, v)
	return true
}

func (d *fakeDevice) pair(low uint64) uint64 {
	return uint64(d.get(datasheet.DMAOffset+low)) | uint64(d.get(datasheet.DMAOffset+low+4))<<32
}

// show writes progress counters to host memory. The lock is held.
func (d *fakeDevice) show(lane int, p datasheet.Progress) {
	s := &d.block.seq[lane]
	p.Sequence = s.Sequence
	datasheet.ProgressAt(d.memory(d.pair(datasheet.RegProgressLow)+uint64(lane)*datasheet.ProgressSize, datasheet.ProgressSize)).Store(&p)
	*s = p
}

// logs writes a record into the log as a sound device does, if there is room
// and the log is on, but for what tamper changes in it.
func (d *fakeDevice) logs(r datasheet.DMARecord, tamper func(r *datasheet.DMARecord)) {
	const at = datasheet.DMAOffset
	if d.get(at+datasheet.RegDMAControl)&datasheet.DMAControlLog == 0 {
		return
	}
	log2 := d.get(at + datasheet.RegLogLog2)
	if d.block.logged-d.get(at+datasheet.RegLogConsumer) == 1<<log2 {
		d.set(at+datasheet.RegLogLost, d.get(at+datasheet.RegLogLost)+1)
		return
	}
	slot := d.block.logged & (1<<log2 - 1)
	to := &datasheet.DMARecordsAt(d.memory(d.pair(datasheet.RegLogBaseLow)+uint64(slot)*datasheet.DMARecordSize, datasheet.DMARecordSize))[0]
	r.Flags = r.Flags&datasheet.DMARecordQueued | datasheet.PhaseOf(d.block.logged, uint8(log2))
	if tamper != nil {
		tamper(&r)
	}
	flags := r.Flags
	r.Flags = to.Flags
	*to = r
	to.Publish(flags)
	d.block.logged++
	d.set(at+datasheet.RegLogProducer, d.block.logged)
}

// fakeLane is one direction of a sound device whose outgoing engine moves what
// it was allowed when carry says so. All of it runs with the device's lock held.
type fakeLane struct {
	d       *fakeDevice
	number  int
	p       datasheet.Progress
	allowed uint32
	pulses  []uint32
}

// newLanes has the device carry out pulses, and hold the host to the data sheet.
func newLanes(d *fakeDevice) *[2]*fakeLane {
	lanes := &[2]*fakeLane{{d: d, number: 0}, {d: d, number: 1}}
	d.block.pulse = func(lane int, frame uint8, n uint32) {
		l := lanes[lane]
		if l.p.Flags&datasheet.ProgressActive == 0 || frame != uint8(l.p.Frame) || n == 0 || n > l.p.Arrived-l.allowed {
			d.t.Errorf("lane %d: pulse for frame %d, %d bytes; %d of %d have arrived of frame %d, %d are allowed",
				lane, frame, n, l.p.Arrived, l.p.Length, l.p.Frame, l.allowed)
			return
		}
		l.allowed += n
		l.pulses = append(l.pulses, n)
	}
	return lanes
}

// frame starts a frame.
func (l *fakeLane) frame(length, queued uint32) {
	l.p.Frame++
	l.p.Length, l.p.Arrived, l.p.Sent, l.p.Queued, l.p.Flags = length, 0, 0, queued, datasheet.ProgressActive
	l.allowed, l.pulses = 0, nil
	l.d.show(l.number, l.p)
}

// arrive brings n bytes more of it.
func (l *fakeLane) arrive(n uint32) {
	l.p.Arrived += n
	l.d.show(l.number, l.p)
}

// carry moves n bytes on, and ends the frame with its last.
func (l *fakeLane) carry(n uint32) {
	l.p.Sent += n
	if l.p.Sent == l.p.Length {
		l.p.Flags = 0
	}
	l.d.show(l.number, l.p)
}

// waiting is how many bytes the engine may move and has not.
func (l *fakeLane) waiting() uint32 { return l.allowed - l.p.Sent }
