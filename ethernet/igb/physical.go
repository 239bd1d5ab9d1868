package igb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// physical is a physical function, which has the port of the NIC.
type physical struct{}

// Times that the hardware needs, as public drivers for it have them.
const (
	masterTimeout   = 100 * time.Millisecond // to finish requests on PCI Express
	afterReset      = 2 * time.Millisecond   // registers must not be touched for 1 ms
	autoReadTimeout = 20 * time.Millisecond  // to load the NVM; without one it never says so
)

func (physical) reset(ctx context.Context, p *port) error {
	r := &p.regs
	r.status()
	r.write(regIMC, allOnes)
	r.write(regEIMC, allOnes)
	r.write(regRCTL, 0)
	r.write(regTCTL, tctlPadShort)
	r.update(regCTRLEXT, 0, ctrlExtDriverLoaded)
	r.update(regCTRL, ctrlMasterDisable, 0)
	if err := r.take(); err != nil {
		return err
	}
	// A device that does not end its requests is reset all the same: nothing else would.
	err := p.f.WaitFor(ctx, min(masterTimeout, p.config.Timeout), "the end of its requests", func() (bool, error) {
		return r.status()&statusMasterEnabled == 0, r.take()
	})
	if err != nil && !errors.Is(err, ethernet.ErrNotReady) {
		return err
	}
	r.update(regCTRL, ctrlReset, 0)
	if err := r.take(); err != nil {
		return err
	}
	time.Sleep(afterReset)
	err = p.f.Wait(ctx, "a reset", func() (bool, error) {
		r.status()
		v := r.read(regCTRL)
		return v&ctrlReset == 0, r.take()
	})
	if err != nil {
		return err
	}
	err = p.f.WaitFor(ctx, min(autoReadTimeout, p.config.Timeout), "loading the NVM", func() (bool, error) {
		return r.read(regEECD)&eecdAutoRead != 0, r.take()
	})
	if err != nil && !errors.Is(err, ethernet.ErrNotReady) {
		return err
	}
	r.write(regIMC, allOnes)
	r.write(regEIMC, allOnes)
	r.read(regICR)
	r.status()
	return r.take()
}

// address takes the address that the device has loaded itself, or else that in its NVM.
func (physical) address(ctx context.Context, p *port) (ethernet.MAC, error) {
	r := &p.regs
	low, high := r.read(regRAL), r.read(regRAH)
	if err := r.take(); err != nil {
		return ethernet.MAC{}, err
	}
	m := macOf(low, high)
	if high&rahValid != 0 && m.IsStation() || p.family.eerd == 0 {
		return m, nil
	}
	err := p.withSemaphore(ctx, semaphoreNVM, func() error {
		for i := range 3 {
			w, err := p.readNVM(ctx, i)
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint16(m[2*i:], w)
		}
		return nil
	})
	return m, err
}

func (k physical) configure(ctx context.Context, p *port) error {
	r, c := &p.regs, &p.config
	r.update(regCTRLEXT, ctrlExtDriverLoaded, 0)
	vme := uint32(0)
	if c.Offloads&ethernet.OffloadVLAN != 0 {
		vme = ctrlVME
	}
	r.update(regCTRL, ctrlSLU|vme, ctrlForceSpeed|ctrlForceDuplex|ctrlMasterDisable|ctrlVME&^vme)
	r.write(regRLPML, uint32(c.MaxFrame()+ethernet.CRCSize))

	sums := uint32(0)
	if c.Offloads&ethernet.OffloadReceiveSum != 0 {
		sums = rxcsumIP | rxcsumL4
	}
	if p.hashes() {
		sums |= rxcsumHashInside
		p.spread()
	} else {
		r.write(regMRQC, 0)
	}
	r.write(regRXCSUM, sums)

	if c.Interrupts {
		r.write(regGPIE, gpieMSIX|gpieOneShot)
		all := uint32(1)<<len(p.queues) - 1
		r.write(regEIAC, all)
		r.write(regEIAM, all)
	}
	if err := r.take(); err != nil {
		return err
	}
	if err := k.filter(ctx, p); err != nil {
		return err
	}
	return p.startLink(ctx)
}

// hashes says whether received frames have a hash.
func (p *port) hashes() bool {
	return !p.family.virtual && (len(p.queues) > 1 || p.config.Offloads&ethernet.OffloadHash != 0)
}

// spread has flows spread over the queues by their hash.
func (p *port) spread() {
	r := &p.regs
	for i := range 10 {
		r.write(regRSSRK+4*uint64(i), binary.LittleEndian.Uint32(p.config.HashKey[4*i:]))
	}
	for i := range 32 {
		var entries [4]byte
		for j := range entries {
			entries[j] = byte((4*i + j) % len(p.queues))
		}
		r.write(regRETA+4*uint64(i), binary.LittleEndian.Uint32(entries[:]))
	}
	r.write(regMRQC, mrqcRSS|mrqcFields)
}

func (physical) enable(p *port) {
	p.regs.write(regTCTL, tctlEnable|tctlPadShort|tctlCollision|tctlRetryLate)
	p.regs.update(regRCTL, rctlEnable, 0)
}

func (physical) filter(_ context.Context, p *port) error {
	r, f := &p.regs, &p.filter
	low, high := wordsOf(f.mac)
	r.write(regRAH, 0) // not valid while it changes
	r.write(regRAL, low)
	r.write(regRAH, high|rahValid)

	var groups [128]uint32
	for _, g := range f.groups {
		h := groupHash(g)
		groups[h>>5] |= 1 << (h & 31)
	}
	for i, v := range groups {
		r.write(regMTA+4*uint64(i), v)
	}
	set := uint32(rctlBroadcast | rctlLong | rctlStripCRC)
	if f.vlans != nil && !f.promiscuous {
		set |= rctlVLANFilter
		var ids [128]uint32
		for _, id := range f.vlans {
			ids[id>>5] |= 1 << (id & 31)
		}
		for i, v := range ids {
			r.write(regVFTA+4*uint64(i), v)
		}
	}
	if f.promiscuous {
		set |= rctlUnicastAll | rctlMulticastAll
	}
	r.update(regRCTL, set, rctlUnicastAll|rctlMulticastAll|rctlVLANFilter)
	r.status() // what was written is done when this is answered
	return r.take()
}

func (physical) route(p *port, queue, vector int) {
	for _, send := range []bool{false, true} {
		reg, shift := p.family.vectorField(queue, send)
		p.regs.update(reg, (uint32(vector)|ivarValid)<<shift, 0xff<<shift)
	}
}

func (physical) count(p *port) {
	r, d := &p.regs, &p.device
	d.ReceivedFrames += uint64(r.read(regGPRC))
	d.SentFrames += uint64(r.read(regGPTC))
	d.ReceivedBytes += r.read64(regGORCL, regGORCH)
	d.SentBytes += r.read64(regGOTCL, regGOTCH)
	d.Missed += uint64(r.read(regMPC))
	d.ReceiveErrors += uint64(r.read(regCRCERRS)) + uint64(r.read(regRXERRC)) + uint64(r.read(regRLEC))
	for i := range p.queues {
		// What found no descriptor in one queue.
		reg := p.family.receiveBase(i) + ringRQDPC
		d.Missed += uint64(r.read(reg) & 0xfff)
		if p.family.clearRQDPC {
			r.write(reg, 0)
		}
	}
}

// read64 reads a counter of 64 bits, of which reading the upper half clears both.
func (r *registers) read64(low, high uint64) uint64 {
	l := r.read(low)
	return uint64(r.read(high))<<32 | uint64(l)
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
func (p *port) readNVM(ctx context.Context, word int) (uint16, error) {
	const start, done = 1 << 0, 1 << 1
	r := &p.regs
	r.write(p.family.eerd, uint32(word)<<2|start)
	var v uint32
	err := p.f.Wait(ctx, fmt.Sprintf("reading word %d of the NVM", word), func() (bool, error) {
		v = r.read(p.family.eerd)
		return v&done != 0 && v != allOnes, r.take()
	})
	return uint16(v >> 16), err
}
