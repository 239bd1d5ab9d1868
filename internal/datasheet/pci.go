package datasheet

// PCI identity of the device (SPEC.md 1.1). The project has no vendor ID of its
// own from the PCI-SIG: 0x1234 is the number that prototypes use (QEMU's edu
// and standard VGA devices among them). A board maker puts his own into config
// space and tells the driver with driver.Options.
const (
	PCIVendorID          uint16 = 0x1234
	PCIDeviceID          uint16 = 0x7250
	PCISubsystemVendorID uint16 = 0x1234
	PCISubsystemID       uint16 = 0x7250
	PCIRevision          uint8  = 0x01
	// PCIClass is network controller (02), other (80), interface 0.
	PCIClass uint32 = 0x028000
)

// The BARs. All three are 64-bit memory.
const (
	BARRegisters = 0
	BARDoorbells = 2
	BARSRAM      = 4
)
