package qtest

import (
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/vfio"
)

// What is where on the machine's buses. RAM ends below all of it.
const (
	// ecam is where configuration space is in memory: 1 MiB a bus, 4 KiB a function
	// (PCIe base specification, 7.2.2). It is QEMU's own default for q35.
	ecam = 0xb0000000
	// Each port passes a window of memory on to the device behind it.
	memoryWindows = 0xc0000000
	memoryWindow  = 32 << 20

	// configAddress and configData are the I/O ports through which configuration
	// space is reached before (PCI 3.0, 3.2.2.3.2).
	configAddress, configData = 0xcf8, 0xcfc
	// pciexbar is the register of the host bridge, function 0 of bus 0, that says
	// where ecam is; bit 0 enables it (Intel Q35 data sheet, 5.1.17).
	pciexbar = 0x60
)

// Registers of a bridge's configuration space (PCI-to-PCI bridge specification 1.2,
// 3.2.5), and a bit.
const (
	bridgeBuses       = 0x18 // primary, secondary, subordinate: 8 bits each
	bridgeMemory      = 0x20 // base, limit: 16 bits each
	bridgePrefetch    = 0x24 // likewise
	bridgeControl     = 0x3e // 16 bits
	bridgeBusReset    = 1 << 6
	commandEverything = uint64(vfio.CommandMemory | vfio.CommandBusMaster)
)

// configOf returns where the configuration space of function 0 is.
func configOf(bus, device int) uint64 { return ecam + uint64(bus)<<20 + uint64(device)<<15 }

// port returns the configuration space of the root port of device n.
func port(n int) uint64 { return configOf(0, n+1) }

// function returns the configuration space of device n, which is alone on its bus.
func function(n int) uint64 { return configOf(n+1, 0) }

// deviceArguments are QEMU's for device n, which is alone behind a port: the virtual
// functions of some take slots on the bus.
func deviceArguments(n int, device string, wire int) []string {
	if name, rest, _ := strings.Cut(device, ","); strings.HasPrefix(name, "virtio-") && !goesAround(device) {
		device = name + ",iommu_platform=on," + rest // else it goes around the IOMMU
		device = strings.TrimSuffix(device, ",")
	}
	return []string{
		"-device", fmt.Sprintf("pcie-root-port,id=p%d,bus=pcie.0,chassis=%d,slot=%d,addr=%d", n, n+1, n+1, n+1),
		"-netdev", fmt.Sprintf("dgram,id=n%d,local.type=fd,local.str=%d", n, wire),
		"-device", fmt.Sprintf("%s,id=d%d,bus=p%d,netdev=n%d,romfile=", device, n, n, n),
	}
}

// goesAround reports whether a device takes bus addresses for those of RAM, IOMMU or
// not. Transitional virtio devices cannot do otherwise.
func goesAround(device string) bool {
	return strings.HasPrefix(device, "virtio-") &&
		(strings.Contains(device, ",disable-legacy=off") || strings.Contains(device, ",iommu_platform=off"))
}

// setUpBuses does what firmware does, apart from the devices' own BARs.
func (m *Machine) setUpBuses() error {
	all := []write{{"outl", configAddress, 1<<31 | pciexbar}, {"outl", configData, ecam | 1}}
	for n := range m.names {
		memory := uint64(memoryWindows + n*memoryWindow)
		all = append(all,
			write{"writel", port(n) + bridgeBuses, uint64(n+1)<<8 | uint64(n+1)<<16},
			write{"writel", port(n) + bridgeMemory, memory>>16 | (memory+memoryWindow-1)&0xfff00000},
			write{"writel", port(n) + bridgePrefetch, 0x0000fff0}, // none: its base is above its limit
			write{"writel", port(n) + vfio.ConfigCommand, commandEverything})
	}
	return m.writeAll(all...)
}

// Slot Control (PCIe base specification, 7.5.3.10): what powers a slot off, as
// the guests do.
const (
	slotControl      = 0x18
	slotPowerOff     = 1 << 10
	slotIndicatorOff = 3 << 8
)

// Unplug takes device n out of its slot, as a card is pulled without a word: all
// that is read from it is all ones from then on, and what is written is lost.
func (m *Machine) Unplug(n int) error {
	const op = "unplug"
	if err := m.has(n); err != nil {
		return m.fail(op, n, err)
	}
	b := make([]byte, vfio.ConfigSize)
	if err := m.readMemory(port(n), b); err != nil {
		return m.fail(op, n, err)
	}
	express, err := findCapability(b, vfio.CapabilityPCIe)
	if err == nil {
		err = m.write("writew", port(n)+uint64(express)+slotControl, slotPowerOff|slotIndicatorOff)
	}
	if err != nil {
		return m.fail(op, n, err)
	}
	m.unplugged[n].Store(true)
	return nil
}

// findCapability walks the chain of a bridge's capabilities, which vfio.ParseConfig
// does not do: a bridge is no endpoint.
func findCapability(b []byte, id uint16) (int, error) {
	for at, steps := int(b[0x34]&^3), 0; at >= 64 && steps < 48; steps++ {
		if uint16(b[at]) == id {
			return at, nil
		}
		at = int(b[at+1] &^ 3)
	}
	return 0, fmt.Errorf("%w: capability %#x is missing", vfio.ErrBadConfig, id)
}

// readMemory reads any number of bytes with one request.
func (m *Machine) readMemory(address uint64, p []byte) error {
	value, err := m.link.ask("read %#x %#x", address, len(p))
	if err != nil {
		return err
	}
	return m.understood(parseBytes(value, p))
}

// understood ends the connection if an answer is not one to what was asked.
func (m *Machine) understood(err error) error {
	if err != nil {
		return m.link.fail(err)
	}
	return nil
}
