package mqnic

import "github.com/trapeze-nic/trapeze/ethernet"

// Application implements ethernet.Programmable.
func (p *Port) Application() (id uint32, registers ethernet.Region) {
	if p.device.application != nil {
		registers = p.device.application
	}
	return p.device.card.app, registers
}

// applicationBAR is where the registers of an application are.
const applicationBAR = 2

// openApplication opens the registers of an application, if the design has one and they are there.
func (d *device) openApplication() error {
	if d.card.app == 0 {
		return nil
	}
	r, err := d.pci.Region(applicationBAR)
	if err != nil || r.Size == 0 {
		return err
	}
	d.application, err = d.f.OpenBAR(applicationBAR, 4)
	return err
}
