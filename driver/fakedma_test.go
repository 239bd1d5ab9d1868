package driver_test

import (
	"github.com/trapeze-nic/trapeze/descriptors"
)

// fakeBlockDMA is the device's side of the DMA block.
type fakeBlockDMA struct {
	// pulse is called with every pulse, with the device's lock held; lane is 0 for
	// transmit. The frame is the low byte of its number.
	pulse func(lane int, frame uint8, n uint32)
	// refuses says which registers a device does not take values in.
	refuses map[uint64]func(v uint32) bool
	seq     [2]descriptors.Progress
	logged  uint32
}

// addDMA gives the device a DMA block.
func (d *fakeDevice) addDMA() {
	d.block = &fakeBlockDMA{refuses: map[uint64]func(uint32) bool{}}
	d.chain(append(d.olderBlocks(), fakeBlock{descriptors.BlockDMA, descriptors.BlockVersion1, descriptors.DMAOffset, descriptors.DMASize})...)
	d.resetDMA()
}

func (d *fakeDevice) resetDMA() {
	if d.block == nil {
		return
	}
	for reg := uint64(descriptors.BlockHeaderSize); reg < descriptors.DMASize; reg += 4 {
		d.set(descriptors.DMAOffset+reg, 0)
	}
	for reg, v := range map[uint64]uint32{
		descriptors.RegDMAEngines: uint32(descriptors.DMAEngineCount),
		descriptors.RegPolicyTx:   uint32(descriptors.DMAPolicyAMP), descriptors.RegPolicyRx: uint32(descriptors.DMAPolicyAMP),
		descriptors.RegMinPulseTx: 4096, descriptors.RegMinPulseRx: 2048,
		descriptors.RegPulseDeadline: descriptors.PulseDeadlineReset,
	} {
		d.set(descriptors.DMAOffset+reg, v)
	}
}

func (d *fakeDevice) dmaRegister(reg uint64) (v uint32) {
	d.with(func() { v = d.get(descriptors.DMAOffset + reg) })
	return v
}

// writeDMA writes a register of the DMA block as a sound device does. It
// reports whether it is one.
func (d *fakeDevice) writeDMA(offset uint64, v uint32) bool {
	if d.block == nil || offset < descriptors.DMAOffset+descriptors.BlockHeaderSize || offset >= descriptors.DMAOffset+descriptors.DMASize {
		return false
	}
	reg := offset - descriptors.DMAOffset
	control := d.get(descriptors.DMAOffset + descriptors.RegDMAControl)
	const pulses = descriptors.DMAControlHostTx | descriptors.DMAControlHostRx
	if no := d.block.refuses[reg]; no != nil && no(v) {
		return true
	}
	switch reg {
	case descriptors.RegPulseTx, descriptors.RegPulseRx:
		if frame, n := descriptors.SplitPulse(v); d.block.pulse != nil {
			d.block.pulse(int(reg-descriptors.RegPulseTx)/4, frame, n)
		}
		return true
	case descriptors.RegPolicyTx, descriptors.RegPolicyRx:
		if v < uint32(descriptors.DMAPolicyStoreAndForward) || v > uint32(descriptors.DMAPolicyAuto) {
			return true
		}
	case descriptors.RegMinPulseTx, descriptors.RegMinPulseRx:
		if v < 1 || v > descriptors.MaxMinPulse {
			return true
		}
	case descriptors.RegProgressLow, descriptors.RegProgressHigh:
		if control&pulses != 0 || reg == descriptors.RegProgressLow && v%descriptors.ProgressSize != 0 {
			return true
		}
	case descriptors.RegLogBaseLow, descriptors.RegLogBaseHigh, descriptors.RegLogLog2:
		if control&descriptors.DMAControlLog != 0 {
			return true
		}
	case descriptors.RegDMAControl:
		if v&descriptors.DMAControlReserved != 0 {
			return true
		}
		if v&^control&descriptors.DMAControlLog != 0 {
			d.block.logged = 0
			for _, zero := range []uint64{descriptors.RegLogConsumer, descriptors.RegLogProducer, descriptors.RegLogLost} {
				d.set(descriptors.DMAOffset+zero, 0)
			}
		}
	case descriptors.RegPulseTimeouts, descriptors.RegPulsesRefused, descriptors.RegLogProducer, descriptors.RegLogLost, descriptors.RegDMAEngines:
		return true
	}
	d.set(offset, v)
	return true
}

func (d *fakeDevice) pair(low uint64) uint64 {
	return uint64(d.get(descriptors.DMAOffset+low)) | uint64(d.get(descriptors.DMAOffset+low+4))<<32
}

// show writes progress counters to host memory. The lock is held.
func (d *fakeDevice) show(lane int, p descriptors.Progress) {
	s := &d.block.seq[lane]
	p.Sequence = s.Sequence
	descriptors.ProgressAt(d.memory(d.pair(descriptors.RegProgressLow)+uint64(lane)*descriptors.ProgressSize, descriptors.ProgressSize)).Store(&p)
	*s = p
}

// logs writes a record into the log as a sound device does, if there is room
// and the log is on, but for what tamper changes in it.
func (d *fakeDevice) logs(r descriptors.DMARecord, tamper func(r *descriptors.DMARecord)) {
	const at = descriptors.DMAOffset
	if d.get(at+descriptors.RegDMAControl)&descriptors.DMAControlLog == 0 {
		return
	}
	log2 := d.get(at + descriptors.RegLogLog2)
	if d.block.logged-d.get(at+descriptors.RegLogConsumer) == 1<<log2 {
		d.set(at+descriptors.RegLogLost, d.get(at+descriptors.RegLogLost)+1)
		return
	}
	slot := d.block.logged & (1<<log2 - 1)
	to := &descriptors.DMARecordsAt(d.memory(d.pair(descriptors.RegLogBaseLow)+uint64(slot)*descriptors.DMARecordSize, descriptors.DMARecordSize))[0]
	r.Flags = r.Flags&descriptors.DMARecordQueued | descriptors.PhaseOf(d.block.logged, uint8(log2))
	if tamper != nil {
		tamper(&r)
	}
	flags := r.Flags
	r.Flags = to.Flags
	*to = r
	to.Publish(flags)
	d.block.logged++
	d.set(at+descriptors.RegLogProducer, d.block.logged)
}

// fakeLane is one direction of a sound device whose outgoing engine moves what
// it was allowed when carry says so. All of it runs with the device's lock held.
type fakeLane struct {
	d       *fakeDevice
	number  int
	p       descriptors.Progress
	allowed uint32
	pulses  []uint32
}

// newLanes has the device carry out pulses, and hold the host to the data sheet.
func newLanes(d *fakeDevice) *[2]*fakeLane {
	lanes := &[2]*fakeLane{{d: d, number: 0}, {d: d, number: 1}}
	d.block.pulse = func(lane int, frame uint8, n uint32) {
		l := lanes[lane]
		if l.p.Flags&descriptors.ProgressActive == 0 || frame != uint8(l.p.Frame) || n == 0 || n > l.p.Arrived-l.allowed {
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
	l.p.Length, l.p.Arrived, l.p.Sent, l.p.Queued, l.p.Flags = length, 0, 0, queued, descriptors.ProgressActive
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
