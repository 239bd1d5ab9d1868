package mqnic

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// boards are the ids that block FW_ID reports, which are also the subsystem's vendor and device
// (modules/mqnic/mqnic_board.c and the fpga.v of each design).
var boards = map[uint32]string{
	0x10ee9032: "Alveo U50", 0x10ee9037: "Alveo U55N", 0x10ee90c8: "Alveo U200", 0x10ee90fa: "Alveo U250",
	0x10ee9118: "Alveo U280", 0x10ee902d: "Alveo U45N", 0x10ee806c: "VCU108", 0x10ee9076: "VCU118", 0x10ee95f5: "VCU1525",
	0x10ee906a: "ZCU106", 0x10ee7028: "NetFPGA SUME", 0x41449003: "ADM-PCIE-9V3", 0x1c2ca00e: "fb2CG@KU15P",
	0x1c2c9403: "fb4CGg3@VU9P", 0x1ce40003: "Nexus K35-S", 0x1ce40009: "Nexus K3P-S", 0x1ce4000a: "Nexus K3P-Q",
	0x17df1a00: "DNPCIe_40G_KU", 0x12ba8823: "XUSP3S", 0x12ba9823: "XUP-P3R", 0x12bab5d4: "IA-420F", 0x198a250e: "250-SoC",
	0x198a0521: "520NMX", 0x11720001: "DK-DEV-1SMX", 0x1172a00d: "DK-DEV-1SDX-P", 0x1172b00e: "DK-DEV-AGF014EA", 0x1172b00a: "DE10-Agilex",
}

// boardName names a board by its id.
func boardName(id uint32) string {
	if name, ok := boards[id]; ok {
		return "Corundum on " + name
	}
	return fmt.Sprintf("Corundum on board %08x", id)
}

func init() {
	// Tested stays false until a board was run: the fake device and a simulation are no model of it.
	d := ethernet.Driver{Name: "mqnic", Interfaces: true, Open: open,
		Board: func(vendor, device uint16) string { return boardName(uint32(vendor)<<16 | uint32(device)) }}
	for _, id := range []struct{ vendor, device uint16 }{{0x1234, 0x1001}, {0x5543, 0x1001}} {
		d.Models = append(d.Models, ethernet.Model{Vendor: id.vendor, Device: id.device, Name: "Corundum"})
	}
	ethernet.Register(d)
}
