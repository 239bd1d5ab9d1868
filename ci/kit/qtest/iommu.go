package qtest

import (
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/vfio"
)

// Every device has 512 MiB of bus addresses of its own, above 4 GiB so that a driver
// which forgets the upper half of an address is found out. The first 2 MiB are for the
// messages of interrupts.
const (
	window     = 16 << 32
	windowSize = 512 << 20
	reserved   = hugePage
)

// The IOMMU of the machine (Intel VT-d specification 3.x: 10.4, registers; 9.1, 9.3 and
// 9.8, tables). It is used as simply as it can be: three levels of tables, and
// invalidation of everything by registers.
const (
	iommu         = 0xfed90000
	iommuCommand  = 0x18
	iommuRoot     = 0x20
	iommuContext  = 0x28
	iommuStatus   = 0x34 // of faults
	iommuTLB      = 0xf8
	iommuFault    = 0x220 // where QEMU has its only record of a fault
	setRoot       = 1 << 30
	translate     = 1 << 31
	allContexts   = 1<<63 | 1<<61
	allTLB        = uint64(1<<63 | 1<<60)
	faultOverflow = 1 << 0
	faultPending  = 1 << 63 // of a record's upper half

	present      = 1
	readable     = 1
	writable     = 2
	threeLevels  = 1 // of 39 bits of address
	pageSize     = 4096
	levelTwoSize = 1 << 21
)

// What is where in RAM. All that is below 1 MiB is left to the PC.
const (
	rootTable     = 1 << 20
	contextTables = rootTable + pageSize // one for each bus, that is device
	messages      = contextTables + MaxDevices*pageSize
	messagesSize  = 2 * pageSize // 4 bytes for each of 2048 vectors
	tables        = 2 << 20
	// Of each device: the upper two levels, and then the lowest for the whole window.
	lowest     = 2 * pageSize
	tablesSize = lowest + windowSize/pageSize*8
)

// tablesOf returns where the tables of device n are.
func tablesOf(n int) uint64 { return tables + uint64(n)*tablesSize }

// messagesOf returns where the messages of device n are stored.
func messagesOf(n int) uint64 { return messages + uint64(n)*messagesSize }

// ramBegin returns where memory begins that can be given to n devices.
func ramBegin(n int) uint64 { return (tablesOf(n) + hugePage - 1) &^ (hugePage - 1) }

func (m *Machine) entry(at, value uint64) {
	binary.LittleEndian.PutUint64(m.ram.Bytes()[at:], value)
}

// setUpIOMMU makes the tables, with nothing in them but the messages, and has the IOMMU
// use them.
func (m *Machine) setUpIOMMU() error {
	for n := range m.names {
		context, t := uint64(contextTables+n*pageSize), tablesOf(n)
		m.entry(rootTable+16*uint64(n+1), context|present)
		m.entry(context, t|present)
		m.entry(context+8, uint64(n+1)<<8|threeLevels)
		const below = window % (1 << 39)
		m.entry(t+8*(below>>30), t+pageSize|readable|writable)
		for i := range uint64(windowSize / levelTwoSize) {
			m.entry(t+pageSize+8*i, t+lowest+i*pageSize|readable|writable)
		}
		m.setPages(n, window, messagesOf(n), messagesSize, vfio.DMAWrite)
	}
	return m.writeAll(
		write{"writeq", iommu + iommuRoot, rootTable}, write{"writel", iommu + iommuCommand, setRoot},
		write{"writeq", iommu + iommuContext, allContexts}, write{"writeq", iommu + iommuTLB, allTLB},
		write{"writel", iommu + iommuCommand, translate})
}

// setPages has bus addresses of device n lead to RAM from at on, or nowhere without
// flags.
func (m *Machine) setPages(n int, iova, at, size uint64, flags vfio.DMAFlags) {
	for offset := uint64(0); offset < size; offset += pageSize {
		var v uint64
		if flags != 0 {
			v = at + offset
			if flags&vfio.DMARead != 0 {
				v |= readable
			}
			if flags&vfio.DMAWrite != 0 {
				v |= writable
			}
		}
		m.entry(tablesOf(n)+lowest+(iova-window+offset)/pageSize*8, v)
	}
}

// FaultError says that a device accessed memory that was not mapped, or not so.
type FaultError struct {
	// Device is its number; another number is that of a bus.
	Device int
	// Address is the bus address of the page.
	Address uint64
	// Write says that the device would write.
	Write bool
	// Reason is the IOMMU's, such as 5: not to be written, or 6: not to be read (Intel
	// VT-d specification, 7.1.3).
	Reason uint8
}

func (e *FaultError) Error() string {
	how := "read"
	if e.Write {
		how = "write"
	}
	return fmt.Sprintf("device %d tried to %s at bus address %#x, where nothing is mapped for that (reason %d)", e.Device, how, e.Address, e.Reason)
}

// Fault returns the first fault of DMA since it was last called, a *FaultError inside a
// *vfio.Error; nil if there was none. A driver that makes faults has not mapped what its
// device uses, or has unmapped it too early.
func (m *Machine) Fault() error {
	const op = "look for DMA faults of"
	low, err := m.read("readq", iommu+iommuFault, 8)
	var high uint64
	if err == nil {
		high, err = m.read("readq", iommu+iommuFault+8, 8)
	}
	if err != nil {
		return m.fail(op, 0, err)
	}
	if high&faultPending == 0 {
		return nil
	}
	e := &FaultError{Device: int(high>>8&0xff) - 1, Address: low &^ 0xfff, Write: high&(1<<62) == 0, Reason: uint8(high >> 32)}
	// The bits are cleared by writing them.
	clear := write{"writel", iommu + iommuFault + 12, faultPending >> 32}
	if err := m.writeAll(clear, write{"writel", iommu + iommuStatus, faultOverflow}); err != nil {
		return m.fail(op, 0, err)
	}
	return m.fail("do DMA with", e.Device, e)
}
