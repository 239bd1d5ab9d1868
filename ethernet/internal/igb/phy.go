package igb

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// Software and firmware share the PHY and the NVM. SW_FW_SYNC has a bit for each user of
// each, firmware's 16 above ours, and is itself guarded by the two bits of SWSM.
const (
	semaphoreNVM = 1 << 0

	swsmSoftware = 1 << 0 // reading sets it: who reads 0 has it
	swsmFirmware = 1 << 1 // is ours if it can be set
)

// semaphorePHY is the bit of the PHY of a port, by its function.
var semaphorePHY = [4]uint32{1 << 1, 1 << 2, 1 << 5, 1 << 6}

// Bits of MDIC, and the PHY's control register (IEEE 802.3, 22.2.4.1).
const (
	mdicPHYShift      = 21
	mdicRegisterShift = 16
	mdicWrite         = 1 << 26
	mdicRead          = 2 << 26
	mdicReady         = 1 << 28
	mdicError         = 1 << 30

	phyControl       = 0
	phyPowerDown     = 1 << 11
	phyNegotiate     = 1 << 12
	phyRestart       = 1 << 9
	phyIsolate       = 1 << 10
	phyLoopback      = 1 << 14
	phyNothingSpoken = 0xffff // no PHY drives the bus
)

// withSemaphore runs f while firmware leaves one of its resources to us.
func (d *device) withSemaphore(ctx context.Context, resource uint32, f func() error) error {
	r := &d.regs
	err := d.f.Wait(ctx, "firmware to leave the PHY or the NVM", func() (bool, error) {
		if err := d.guard(ctx); err != nil {
			return false, err
		}
		v := r.Read(regSWFWSYNC)
		free := v&(resource|resource<<16) == 0
		if free {
			r.Write(regSWFWSYNC, v|resource)
		}
		d.release()
		return free, r.Take()
	})
	if err != nil {
		return err
	}
	err = f()
	if gerr := d.guard(ctx); gerr != nil {
		if err == nil {
			err = gerr
		}
		return err
	}
	r.Update(regSWFWSYNC, 0, resource)
	d.release()
	if rerr := r.Take(); err == nil {
		err = rerr
	}
	return err
}

// guard takes SWSM, which guards SW_FW_SYNC. One that stays taken was left by a driver
// that died with it, as it is held for microseconds: then it is given back for that
// driver, once.
func (d *device) guard(ctx context.Context) error {
	r := &d.regs
	take := func() error {
		if err := d.f.WaitFor(ctx, d.options.Timeout/4, "the semaphore of drivers", func() (bool, error) {
			r.status()
			return r.Read(regSWSM)&swsmSoftware == 0, r.Take()
		}); err != nil {
			return err
		}
		return d.f.WaitFor(ctx, d.options.Timeout/4, "the semaphore of firmware", func() (bool, error) {
			r.Update(regSWSM, swsmFirmware, 0)
			return r.Read(regSWSM)&swsmFirmware != 0, r.Take()
		})
	}
	if err := take(); !errors.Is(err, ethernet.ErrNotReady) {
		return err
	}
	d.release()
	return take()
}

// release gives SWSM back.
func (d *device) release() { d.regs.Update(regSWSM, 0, swsmSoftware|swsmFirmware) }

// startLink has the PHY negotiate the link. That takes seconds, and no caller waits for it.
func (d *device) startLink(ctx context.Context) error {
	r := &d.regs
	if d.family.linkDisconnect {
		r.Update(regPHPM, 0, phpmNoLink)
	}
	address, status := uint32(1), r.status()
	if d.family.phyInConfig {
		address = r.Read(regMDICNFG) >> mdicPHYShift & 31
	}
	if err := r.Take(); err != nil {
		return err
	}
	return d.withSemaphore(ctx, semaphorePHY[status&statusFunction>>2], func() error {
		v, err := d.mdic(ctx, address<<mdicPHYShift|phyControl<<mdicRegisterShift|mdicRead)
		if err != nil {
			return err
		}
		if v == phyNothingSpoken {
			return fmt.Errorf("%w: no PHY at address %d", ethernet.ErrNotReady, address)
		}
		v = v&^(phyPowerDown|phyIsolate|phyLoopback) | phyNegotiate | phyRestart
		_, err = d.mdic(ctx, address<<mdicPHYShift|phyControl<<mdicRegisterShift|mdicWrite|uint32(v))
		return err
	})
}

// mdic gives a command to the PHY and returns its data.
func (d *device) mdic(ctx context.Context, command uint32) (uint16, error) {
	r := &d.regs
	r.Write(regMDIC, command)
	var v uint32
	err := d.f.Wait(ctx, "the PHY", func() (bool, error) {
		v = r.Read(regMDIC)
		if r.Err() == nil && v == allOnes {
			r.status() // is it the PHY or the device?
		}
		return v&mdicReady != 0 && v != allOnes, r.Take()
	})
	if err == nil && v&mdicError != 0 {
		err = fmt.Errorf("%w: the PHY refuses command %#x", ethernet.ErrNotReady, command)
	}
	return uint16(v), err
}
