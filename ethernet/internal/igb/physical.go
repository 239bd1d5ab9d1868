package igb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
)

// physical is a physical function, which has the port of the NIC.
type physical struct{}

// Times that the hardware needs, as public drivers for it have them.
const (
	masterTimeout   = 100 * time.Millisecond // to finish requests on PCI Express
	afterReset      = 2 * time.Millisecond   // registers must not be touched for 1 ms
	autoReadTimeout = 20 * time.Millisecond  // to load the NVM; without one it never says so
)

func (physical) reset(ctx context.Context, d *device) error {
	r := &d.regs
	r.status()
	r.Write(regIMC, allOnes)
	r.Write(regEIMC, allOnes)
	r.Write(regRCTL, 0)
	r.Write(regTCTL, tctlPadShort)
	r.Update(regCTRLEXT, 0, ctrlExtDriverLoaded)
	r.Update(regCTRL, ctrlMasterDisable, 0)
	if err := r.Take(); err != nil {
		return err
	}
	// A device that does not end its requests is reset all the same: nothing else ends them.
	err := d.f.WaitFor(ctx, min(masterTimeout, d.options.Timeout), "the end of its requests", func() (bool, error) {
		return r.status()&statusMasterEnabled == 0, r.Take()
	})
	if err != nil && !errors.Is(err, ethernet.ErrNotReady) {
		return err
	}
	r.Update(regCTRL, ctrlReset, 0)
	if err := r.Take(); err != nil {
		return err
	}
	time.Sleep(afterReset)
	err = d.f.Wait(ctx, "a reset", func() (bool, error) {
		r.status()
		v := r.Read(regCTRL)
		return v&ctrlReset == 0, r.Take()
	})
	if err != nil {
		return err
	}
	err = d.f.WaitFor(ctx, min(autoReadTimeout, d.options.Timeout), "loading the NVM", func() (bool, error) {
		return r.Read(regEECD)&eecdAutoRead != 0, r.Take()
	})
	if err != nil && !errors.Is(err, ethernet.ErrNotReady) {
		return err
	}
	r.Write(regIMC, allOnes)
	r.Write(regEIMC, allOnes)
	r.Read(regICR)
	r.status()
	return r.Take()
}

// address takes the address that the device has loaded itself, or else that in its NVM.
func (physical) address(ctx context.Context, d *device) (ethernet.MAC, error) {
	r := &d.regs
	low, high := r.Read(regRAL), r.Read(regRAH)
	if err := r.Take(); err != nil {
		return ethernet.MAC{}, err
	}
	m := macOf(low, high)
	if high&rahValid != 0 && m.IsStation() || d.family.eerd == 0 {
		return m, nil
	}
	err := d.withSemaphore(ctx, semaphoreNVM, func() error {
		for i := range 3 {
			w, err := d.readNVM(ctx, i)
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint16(m[2*i:], w)
		}
		return nil
	})
	return m, err
}

func (k physical) configure(ctx context.Context, d *device) error {
	r, c := &d.regs, d.options
	r.Update(regCTRLEXT, ctrlExtDriverLoaded, 0)
	vme := uint32(0)
	if c.Offloads&ethernet.OffloadVLAN != 0 {
		vme = ctrlVME
	}
	r.Update(regCTRL, ctrlSLU|vme, ctrlForceSpeed|ctrlForceDuplex|ctrlMasterDisable|ctrlVME&^vme)
	r.Write(regRLPML, uint32(c.MaxFrame()+ethernet.CRCSize))

	sums := uint32(0)
	if c.Offloads&ethernet.OffloadReceiveSum != 0 {
		sums = rxcsumIP | rxcsumL4
	}
	if d.hashes() {
		sums |= rxcsumHashInside
		d.spread()
	} else {
		r.Write(regMRQC, 0)
	}
	r.Write(regRXCSUM, sums)

	if c.Interrupts {
		r.Write(regGPIE, gpieMSIX|gpieOneShot)
		all := uint32(1)<<len(d.queues) - 1
		r.Write(regEIAC, all)
		r.Write(regEIAM, all)
	}
	if err := r.Take(); err != nil {
		return err
	}
	if err := k.filter(ctx, d, d.port.Filter()); err != nil {
		return err
	}
	return d.startLink(ctx)
}

// hashes says whether received frames have a hash.
func (d *device) hashes() bool {
	return !d.family.virtual && (d.options.Queues > 1 || d.options.Offloads&ethernet.OffloadHash != 0)
}

// spread has flows spread over the queues by their hash.
func (d *device) spread() {
	r := &d.regs
	for i := range 10 {
		r.Write(regRSSRK+4*uint64(i), binary.LittleEndian.Uint32(d.options.HashKey[4*i:]))
	}
	for i := range 32 {
		var entries [4]byte
		for j := range entries {
			entries[j] = byte((4*i + j) % len(d.queues))
		}
		r.Write(regRETA+4*uint64(i), binary.LittleEndian.Uint32(entries[:]))
	}
	r.Write(regMRQC, mrqcRSS|mrqcFields)
}

func (physical) enable(d *device) {
	d.regs.Write(regTCTL, tctlEnable|tctlPadShort|tctlCollision|tctlRetryLate)
	d.regs.Update(regRCTL, rctlEnable, 0)
}

func (physical) filter(_ context.Context, d *device, f port.Filter) error {
	r := &d.regs
	low, high := wordsOf(f.MAC)
	r.Write(regRAH, 0) // not valid while it changes
	r.Write(regRAL, low)
	r.Write(regRAH, high|rahValid)

	var groups [128]uint32
	for _, g := range f.Groups {
		h := groupHash(g)
		groups[h>>5] |= 1 << (h & 31)
	}
	for i, v := range groups {
		r.Write(regMTA+4*uint64(i), v)
	}
	set := uint32(rctlBroadcast | rctlLong | rctlStripCRC)
	if f.VLANs != nil && !f.Promiscuous {
		set |= rctlVLANFilter
		var ids [128]uint32
		for _, id := range f.VLANs {
			ids[id>>5] |= 1 << (id & 31)
		}
		for i, v := range ids {
			r.Write(regVFTA+4*uint64(i), v)
		}
	}
	if f.Promiscuous {
		set |= rctlUnicastAll | rctlMulticastAll
	}
	r.Update(regRCTL, set, rctlUnicastAll|rctlMulticastAll|rctlVLANFilter)
	r.status() // what was written is done when this is answered
	return r.Take()
}

func (physical) route(d *device, queue, vector int) {
	for _, send := range []bool{false, true} {
		reg, shift := d.family.vectorField(queue, send)
		d.regs.Update(reg, (uint32(vector)|ivarValid)<<shift, 0xff<<shift)
	}
}

func (physical) count(d *device) {
	r, c := &d.regs, &d.counted
	c.ReceivedFrames += uint64(r.Read(regGPRC))
	c.SentFrames += uint64(r.Read(regGPTC))
	c.ReceivedBytes += r.read64(regGORCL, regGORCH)
	c.SentBytes += r.read64(regGOTCL, regGOTCH)
	c.Missed += uint64(r.Read(regMPC))
	c.ReceiveErrors += uint64(r.Read(regCRCERRS)) + uint64(r.Read(regRXERRC)) + uint64(r.Read(regRLEC))
	for i := range d.queues {
		// What found no descriptor in one queue.
		reg := d.family.receiveBase(i) + ringRQDPC
		c.Missed += uint64(r.Read(reg) & 0xfff)
		if d.family.clearRQDPC {
			r.Write(reg, 0)
		}
	}
}

// read64 reads a counter of 64 bits, of which reading the upper half clears both.
func (r *registers) read64(low, high uint64) uint64 {
	l := r.Read(low)
	return uint64(r.Read(high))<<32 | uint64(l)
}

// groupHash is the place of a group's address among the 4096 bits of the table: twelve
// bits of its last two bytes.
func groupHash(m ethernet.MAC) uint32 { return (uint32(m[5])<<8 | uint32(m[4])) >> 4 }

// macOf and wordsOf convert an address from and to the two registers that hold one.
func macOf(low, high uint32) (m ethernet.MAC) {
	binary.LittleEndian.PutUint32(m[:], low)
	binary.LittleEndian.PutUint16(m[4:], uint16(high))
	return m
}

func wordsOf(m ethernet.MAC) (low, high uint32) {
	return binary.LittleEndian.Uint32(m[:]), uint32(binary.LittleEndian.Uint16(m[4:]))
}

// readNVM reads a word of 16 bits.
func (d *device) readNVM(ctx context.Context, word int) (uint16, error) {
	const start, done = 1 << 0, 1 << 1
	r := &d.regs
	r.Write(d.family.eerd, uint32(word)<<2|start)
	var v uint32
	err := d.f.Wait(ctx, fmt.Sprintf("reading word %d of the NVM", word), func() (bool, error) {
		v = r.Read(d.family.eerd)
		return v&done != 0 && v != allOnes, r.Take()
	})
	return uint16(v >> 16), err
}
