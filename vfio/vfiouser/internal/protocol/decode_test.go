package protocol_test

import (
	"encoding/binary"
	"errors"
	"math"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// bytesOf puts numbers of any size after each other.
func bytesOf(t *testing.T, values ...any) []byte {
	t.Helper()
	var b []byte
	for _, v := range values {
		var err error
		if s, ok := v.(string); ok {
			b = append(b, s...)
		} else if b, err = binary.Append(b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

type (
	u16 = uint16
	u32 = uint32
	u64 = uint64
)

// decode decodes a message as the server (or the client, if it is a reply) does.
func decode(c protocol.Command, reply bool, p []byte, fds int) (any, error) {
	switch {
	case c == protocol.CommandVersion:
		return protocol.DecodeVersion(p)
	case c == protocol.CommandDMAMap:
		return protocol.DecodeDMAMap(p)
	case c == protocol.CommandDMAUnmap:
		return protocol.DecodeDMAUnmap(p)
	case c == protocol.CommandDeviceInfo:
		return protocol.DecodeDeviceInfo(p)
	case c == protocol.CommandRegionInfo && reply:
		return protocol.DecodeRegionInfoReply(p)
	case c == protocol.CommandRegionInfo:
		return protocol.DecodeRegionInfo(p)
	case c == protocol.CommandIRQInfo:
		return protocol.DecodeIRQInfo(p)
	case c == protocol.CommandSetIRQs:
		return protocol.DecodeSetIRQs(p)
	case c == protocol.CommandRegionRead, c == protocol.CommandRegionWrite:
		return protocol.DecodeRegionAccess(c, reply, p)
	case c == protocol.CommandDMARead, c == protocol.CommandDMAWrite:
		return protocol.DecodeDMAAccess(c, reply, p)
	}
	return nil, errNoDecoder
}

var errNoDecoder = errors.New("no decoder")

func TestDecode(t *testing.T) {
	text := func(s string) []byte { return bytesOf(t, u16(0), u16(0), s, "\x00") }
	defaults := protocol.Capabilities{MaxMsgFDs: 1, MaxDataXferSize: 1 << 20, MaxDMAMaps: 65535, PageSizes: 4096}
	qemu := defaults
	qemu.MaxMsgFDs = 16
	tests := []struct {
		name    string
		command protocol.Command
		reply   bool
		payload []byte
		want    any
	}{
		{"version without text", protocol.CommandVersion, false, bytesOf(t, u16(0), u16(3)), protocol.Version{Minor: 3, Capabilities: defaults}},
		{"empty version text", protocol.CommandVersion, false, text(`{}`), protocol.Version{Capabilities: defaults}},
		{"QEMU's version", protocol.CommandVersion, false, text(`{"capabilities": {"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, ` +
			`"max_msg_fds": 16, "pgsizes": 4096, "max_data_xfer_size": 1048576, "max_dma_maps": 65535, "write_multiple": true}}`),
			protocol.Version{Capabilities: qemu}},
		{"libvfio-user's reply", protocol.CommandVersion, true, text(`{ "capabilities": { "max_msg_fds": 8, "max_data_xfer_size": 1048576 } }`),
			protocol.Version{Capabilities: protocol.Capabilities{MaxMsgFDs: 8, MaxDataXferSize: 1 << 20, MaxDMAMaps: 65535, PageSizes: 4096}}},
		{"map up to the last address", protocol.CommandDMAMap, false, bytesOf(t, u32(32), u32(1), u64(0), u64(math.MaxUint64-4095), u64(4096)),
			protocol.DMAMap{Flags: vfio.DMARead, Address: math.MaxUint64 - 4095, Size: 4096}},
		{"map with room for more", protocol.CommandDMAMap, false, bytesOf(t, u32(40), u32(3), u64(0), u64(0), u64(4096), u64(9)),
			protocol.DMAMap{Flags: vfio.DMARead | vfio.DMAWrite, Size: 4096}},
		{"unmap half of all addresses", protocol.CommandDMAUnmap, false, bytesOf(t, u32(24), u32(0), u64(1<<63), u64(1<<63)),
			protocol.DMAUnmap{Argsz: 24, Address: 1 << 63, Size: 1 << 63}},
		{"unmap all", protocol.CommandDMAUnmap, false, bytesOf(t, u32(24), u32(2), u64(0), u64(0)), protocol.DMAUnmap{Argsz: 24, All: true}},
		{"region info with room, as libvfio-user's client asks", protocol.CommandRegionInfo, false,
			bytesOf(t, u32(80), u32(0), u32(2), u32(0), u64(0), u64(0), make([]byte, 48)), protocol.RegionInfo{Argsz: 80, Index: 2}},
		{"region info without capabilities", protocol.CommandRegionInfo, true, bytesOf(t, u32(80), u32(7), u32(2), u32(0), u64(8192), u64(4096)),
			protocol.RegionInfo{Argsz: 80, Flags: 7, Index: 2, Size: 8192, Offset: 4096}},
		{"region info with unknown and sparse capability", protocol.CommandRegionInfo, true,
			bytesOf(t, u32(88), u32(15), u32(2), u32(32), u64(8192), u64(0), u16(3), u16(1), u32(40), u16(1), u16(1), u32(0), u32(1), u32(0), u64(4096), u64(4096)),
			protocol.RegionInfo{Argsz: 88, Flags: 7, Index: 2, Size: 8192, Sparse: []vfio.Area{{Offset: 4096, Size: 4096}}}},
		{"region info with no area at all", protocol.CommandRegionInfo, true,
			bytesOf(t, u32(48), u32(15), u32(2), u32(32), u64(8192), u64(0), u16(1), u16(1), u32(0), u32(0), u32(0)),
			protocol.RegionInfo{Argsz: 48, Flags: 7, Index: 2, Size: 8192, Sparse: []vfio.Area{}}},
		{"read reply", protocol.CommandRegionRead, true, bytesOf(t, u64(4), u32(7), u32(2), u16(0x201)), protocol.RegionAccess{Offset: 4, Region: 7, Count: 2, Data: []byte{1, 2}}},
		{"write reply", protocol.CommandRegionWrite, true, bytesOf(t, u64(4), u32(7), u32(2)), protocol.RegionAccess{Offset: 4, Region: 7, Count: 2, Data: []byte{}}},
		{"read of nothing", protocol.CommandRegionRead, false, bytesOf(t, u64(math.MaxUint64), u32(7), u32(0)), protocol.RegionAccess{Offset: math.MaxUint64, Region: 7, Data: []byte{}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := must.Get(decode(tt.command, tt.reply, tt.payload, 1))(t)
			should.Be(t, cmp.Diff(tt.want, got), "")
		})
	}
}

// TestDecodeRefuses: what a server says, and VERSION. What a client says is in TestRefused of package vfiouser.
func TestDecodeRefuses(t *testing.T) {
	text := func(s string) []byte { return bytesOf(t, u16(0), u16(0), s) }
	sparse := func(flags, capOffset u32, rest ...any) []byte {
		return append(bytesOf(t, u32(64), flags, u32(2), capOffset, u64(8192), u64(0)), bytesOf(t, rest...)...)
	}
	const (
		version = protocol.CommandVersion
		regions = protocol.CommandRegionInfo
		read    = protocol.CommandRegionRead
		write   = protocol.CommandRegionWrite
	)
	tests := []struct {
		name    string
		command protocol.Command
		reply   bool
		payload []byte
		field   string
	}{
		{"version cut off", version, false, []byte{0, 0, 0}, "size"},
		{"version too long", version, false, make([]byte, 65537), "size"},
		{"other major version", version, false, bytesOf(t, u16(1), u16(0)), "major"},
		{"text without NUL", version, false, text(`{}`), "version data"},
		{"text with two NULs", version, false, text("{}\x00\x00"), "version data"},
		{"text is no JSON", version, false, text("{\x00"), "version data"},
		{"text is no object", version, false, text("[]\x00"), "version data"},
		{"capabilities are no object", version, false, text(`{"capabilities":4}` + "\x00"), "capabilities"},
		{"number of fds is text", version, false, text(`{"capabilities":{"max_msg_fds":"8"}}` + "\x00"), "capabilities.max_msg_fds"},
		{"number of fds is negative", version, false, text(`{"capabilities":{"max_msg_fds":-1}}` + "\x00"), "capabilities.max_msg_fds"},
		{"number of maps too large", version, false, text(`{"capabilities":{"max_dma_maps":4294967296}}` + "\x00"), "capabilities.max_dma_maps"},
		{"no data at all", version, false, text(`{"capabilities":{"max_data_xfer_size":4}}` + "\x00"), "max_data_xfer_size"},
		{"odd page size", version, false, text(`{"capabilities":{"pgsizes":512}}` + "\x00"), "pgsizes"},

		{"region info reply cut off", regions, true, make([]byte, 31), "size"},
		{"region info reply with small argsz", regions, true, make([]byte, 32), "argsz"},
		{"region wraps", regions, true, bytesOf(t, u32(32), u32(7), u32(0), u32(0), u64(8192), u64(math.MaxUint64-4095)), "offset"},
		{"capability in the structure", regions, true, sparse(15, 24, u16(1), u16(1), u32(0), u32(0), u32(0)), "cap_offset"},
		{"capability behind the end", regions, true, sparse(15, 41, u16(1), u16(1), u32(0), u32(0), u32(0)), "cap_offset"},
		{"capability far behind the end", regions, true, sparse(15, math.MaxUint32), "cap_offset"},
		{"capability that follows itself", regions, true, sparse(15, 32, u16(9), u16(1), u32(32), u64(0)), "cap_offset"},
		{"capability before the first", regions, true, sparse(15, 40, u64(0), u16(9), u16(1), u32(32)), "cap_offset"},
		{"sparse capability cut off", regions, true, sparse(15, 32, u16(1), u16(1), u32(0)), "size"},
		{"more areas than there are", regions, true, sparse(15, 32, u16(1), u16(1), u32(0), u32(2), u32(0), u64(0), u64(0)), "nr_areas"},
		{"billions of areas", regions, true, sparse(15, 32, u16(1), u16(1), u32(0), u32(math.MaxUint32), u32(0), u64(0), u64(0)), "nr_areas"},
		{"area outside the region", regions, true, sparse(15, 32, u16(1), u16(1), u32(0), u32(1), u32(0), u64(4096), u64(4097)), "area"},
		{"area that wraps", regions, true, sparse(15, 32, u16(1), u16(1), u32(0), u32(1), u32(0), u64(4096), u64(math.MaxUint64)), "area"},
		{"sparse capability twice", regions, true, sparse(15, 32, u16(1), u16(1), u32(48), u32(0), u32(0), u16(1), u16(1), u32(0), u32(0), u32(0)), "capability"},

		{"read reply too short", read, true, bytesOf(t, u64(0), u32(0), u32(2), "x"), "count"},
		{"write reply with data", write, true, bytesOf(t, u64(0), u32(0), u32(1), "x"), "count"},
		{"DMA read cut off", protocol.CommandDMARead, false, make([]byte, 15), "size"},
		{"DMA write with huge count", protocol.CommandDMAWrite, false, bytesOf(t, u64(0), u64(math.MaxUint64), "x"), "count"},
		{"DMA read wraps", protocol.CommandDMARead, false, bytesOf(t, u64(4096), u64(math.MaxUint64)), "address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decode(tt.command, tt.reply, tt.payload, 1)
			var e *protocol.Error
			must.Hold(t, errors.As(err, &e), "got %+v, %v", got, err)
			should.Hold(t, e.Message == tt.command.String() && e.Field == tt.field && e.Why != "" && errors.Is(err, syscall.EINVAL),
				"error %q: message %q, field %q, want field %q", err, e.Message, e.Field, tt.field)
		})
	}
}

func TestFailure(t *testing.T) {
	const failed = protocol.FlagReply | protocol.FlagError
	for _, tt := range []struct {
		flags protocol.Flags
		errno u32
		want  error
	}{
		{protocol.FlagReply, 5, nil}, {failed, 5, syscall.EIO}, {failed, 0, syscall.EINVAL},
		{failed, 4096, syscall.EINVAL}, {failed, math.MaxUint32, syscall.EINVAL},
	} {
		should.Be(t, (protocol.Header{Flags: tt.flags, Errno: tt.errno}).Failure(), tt.want, "flags %#x, errno %d", tt.flags, tt.errno)
	}
}
