package protocol_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// TestLayout compares encoded messages with bytes written by hand from the
// specification (little-endian, as are the processors that we run on).
func TestLayout(t *testing.T) {
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"header", protocol.Header{ID: 0x1234, Command: protocol.CommandSetIRQs, Size: 0x24, Flags: protocol.FlagReply | protocol.FlagError, Errno: 22}.Append(nil),
			"3412 0800 24000000 21000000 16000000"},
		{"DMA_MAP", protocol.DMAMap{Flags: vfio.DMARead | vfio.DMAWrite, Offset: 0x1000, Address: 0x2000, Size: 0x3000}.Append(nil),
			"20000000 03000000 0010000000000000 0020000000000000 0030000000000000"},
		{"DMA_UNMAP", protocol.NewDMAUnmap(0x2000, 0x3000).Append(nil),
			"18000000 00000000 0020000000000000 0030000000000000"},
		{"DMA_UNMAP of all", protocol.DMAUnmap{Argsz: 24, All: true}.Append(nil),
			"18000000 02000000 0000000000000000 0000000000000000"},
		{"DMA_WRITE", protocol.DMAAccess{Address: 0x2000, Count: 2, Data: []byte{1, 2}}.Append(nil),
			"0020000000000000 0200000000000000 0102"},
		{"DEVICE_GET_INFO", protocol.DeviceInfo{Argsz: 16, Flags: protocol.DeviceReset | protocol.DevicePCI, Regions: 9, IRQs: 5}.Append(nil),
			"10000000 03000000 09000000 05000000"},
		{"DEVICE_GET_REGION_INFO", protocol.RegionInfo{Argsz: 32, Flags: 7, Index: 2, Size: 0x8000, Offset: 0x1000}.Append(nil, 32),
			"20000000 07000000 02000000 00000000 0080000000000000 0010000000000000"},
		{"DEVICE_GET_REGION_INFO with areas", protocol.RegionInfo{Argsz: 80, Flags: 7, Index: 2, Size: 0x8000,
			Sparse: []vfio.Area{{Offset: 0x1000, Size: 0x2000}, {Offset: 0x4000, Size: 0x1000}}}.Append(nil, 80),
			"50000000 0f000000 02000000 20000000 0080000000000000 0000000000000000" +
				"0100 0100 00000000 02000000 00000000 0010000000000000 0020000000000000 0040000000000000 0010000000000000"},
		{"DEVICE_GET_REGION_INFO without room for areas", protocol.RegionInfo{Argsz: 64, Flags: 7, Index: 2, Size: 0x8000,
			Sparse: []vfio.Area{{Offset: 0x1000, Size: 0x2000}}}.Append(nil, 63),
			"40000000 07000000 02000000 00000000 0080000000000000 0000000000000000"},
		{"DEVICE_GET_IRQ_INFO", protocol.IRQInfo{Argsz: 16, Flags: 9, Index: 2, Count: 32}.Append(nil),
			"10000000 09000000 02000000 20000000"},
		{"SET_IRQS", protocol.SetIRQs{Data: protocol.IRQDataBool, Action: protocol.IRQActionTrigger, Index: 2, Start: 1, Count: 2, Bools: []byte{0, 1}}.Append(nil),
			"16000000 22000000 02000000 01000000 02000000 0001"},
		{"REGION_WRITE", protocol.RegionAccess{Offset: 0x1c, Region: 7, Count: 4, Data: []byte{1, 2, 3, 4}}.Append(nil),
			"1c00000000000000 07000000 04000000 01020304"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := strings.ReplaceAll(tt.want, " ", "")
			should.Be(t, hex.EncodeToString(tt.got), want)
		})
	}
}

// TestVersionLayout: QEMU has room for 214 bytes of reply, of which 16 are the
// header and 4 the version.
func TestVersionLayout(t *testing.T) {
	v := protocol.Version{Major: 0, Minor: 7, Capabilities: protocol.Capabilities{
		MaxMsgFDs: 1<<32 - 1, MaxDataXferSize: 1<<32 - 1, MaxDMAMaps: 1<<32 - 1, PageSizes: 1<<64 - 4096}}
	b := must.Get(v.Append([]byte{0xaa}))(t)
	should.Be(t, string(b), "\xaa\x00\x00\x07\x00"+`{"capabilities":{"max_msg_fds":4294967295,"max_data_xfer_size":4294967295,`+
		`"max_dma_maps":4294967295,"pgsizes":18446744073709547520}}`+"\x00", "got %q", b)
	n := len(b) - 5
	should.Hold(t, n <= 194, "%d bytes of text", n)
}
