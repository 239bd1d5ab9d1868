package emulator

import (
	"math/bits"

	"github.com/trapeze-nic/trapeze/emulator/internal/pciconfig"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// barCount is the number of BAR registers of a type 0 header; a 64-bit BAR
// takes two.
const barCount = 6

// barWindow is the address of the first BAR; the others follow. It lies below 4 GiB,
// where the firmware of a PC places PCI memory. Nothing decodes these addresses.
const barWindow = 0xe000_0000

// bar is one base address register; size is zero if there is none.
type bar struct {
	size, address uint64
	prefetchable  bool
}

func layBARs(l engine.Limits, sram uint32) [barCount]bar {
	pages := uint64(l.Endpoints) + uint64(l.CQs)
	bars := [barCount]bar{
		datasheet.BARRegisters: {size: datasheet.BAR0Size},
		datasheet.BARDoorbells: {size: 1 << bits.Len64(pages*datasheet.PageSize-1)},
		// Reading memory has no side effects, so a bridge may prefetch it.
		datasheet.BARSRAM: {size: uint64(sram), prefetchable: true},
	}
	at := uint64(barWindow)
	for i := range bars {
		if b := &bars[i]; b.size > 0 {
			at = (at + b.size - 1) &^ (b.size - 1)
			b.address = at
			at += b.size
		}
	}
	return bars
}

// function describes the device to configuration space.
func (d *Device) function() pciconfig.Function {
	f := pciconfig.Function{
		Vendor: datasheet.PCIVendorID, Device: datasheet.PCIDeviceID,
		SubsystemVendor: datasheet.PCISubsystemVendorID, Subsystem: datasheet.PCISubsystemID,
		Revision: datasheet.PCIRevision, Class: datasheet.PCIClass,
		Vectors: len(d.msix.table), MSIXBAR: datasheet.BARRegisters,
		TableOffset: datasheet.MSIXTableOffset, PBAOffset: datasheet.MSIXPBAOffset,
	}
	for i, b := range d.bars {
		if b.size > 0 {
			f.BARs = append(f.BARs, pciconfig.BAR{Index: i, Size: b.size, Prefetchable: b.prefetchable, Address: b.address})
		}
	}
	// A 48-bit address becomes an EUI-64 by ff-fe in its middle, as network
	// cards do for their serial number.
	m := d.engine.MAC
	f.SerialNumber = [8]byte{m[0], m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}
	return f
}

// regionIndexes is the number of regions that the device answers for: six BARs,
// the expansion ROM and configuration space.
const regionIndexes = vfio.RegionConfig + 1
