package protocol_test

import (
	"encoding/binary"
	"errors"
	"math"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	case c == protocol.CommandRegionIOFDs && reply:
		return protocol.DecodeRegionIOFDsReply(p, fds)
	case c == protocol.CommandRegionIOFDs:
		return protocol.DecodeRegionIOFDs(p)
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
			protocol.DMAMap{Flags: protocol.DMARead, Address: math.MaxUint64 - 4095, Size: 4096}},
		{"map with room for more", protocol.CommandDMAMap, false, bytesOf(t, u32(40), u32(3), u64(0), u64(0), u64(4096), u64(9)),
			protocol.DMAMap{Flags: protocol.DMARead | protocol.DMAWrite, Size: 4096}},
		{"unmap half of all addresses", protocol.CommandDMAUnmap, false, bytesOf(t, u32(24), u32(0), u64(1<<63), u64(1<<63)),
			protocol.DMAUnmap{Argsz: 24, Address: 1 << 63, Size: 1 << 63}},
		{"unmap all", protocol.CommandDMAUnmap, false, bytesOf(t, u32(24), u32(2), u64(0), u64(0)), protocol.DMAUnmap{Argsz: 24, All: true}},
		{"device info", protocol.CommandDeviceInfo, false, bytesOf(t, u32(16), u32(0), u32(0), u32(0)), protocol.DeviceInfo{Argsz: 16}},
		{"region info with room, as libvfio-user's client asks", protocol.CommandRegionInfo, false,
			bytesOf(t, u32(80), u32(0), u32(2), u32(0), u64(0), u64(0), make([]byte, 48)), protocol.RegionInfo{Argsz: 80, Index: 2}},
		{"region info without capabilities", protocol.CommandRegionInfo, true, bytesOf(t, u32(80), u32(7), u32(2), u32(0), u64(8192), u64(4096)),
			protocol.RegionInfo{Argsz: 80, Flags: 7, Index: 2, Size: 8192, Offset: 4096}},
		{"region info with unknown and sparse capability", protocol.CommandRegionInfo, true,
			bytesOf(t, u32(88), u32(15), u32(2), u32(32), u64(8192), u64(0), u16(3), u16(1), u32(40), u16(1), u16(1), u32(0), u32(1), u32(0), u64(4096), u64(4096)),
			protocol.RegionInfo{Argsz: 88, Flags: 7, Index: 2, Size: 8192, Sparse: []protocol.Area{{Offset: 4096, Size: 4096}}}},
		{"region info with no area at all", protocol.CommandRegionInfo, true,
			bytesOf(t, u32(48), u32(15), u32(2), u32(32), u64(8192), u64(0), u16(1), u16(1), u32(0), u32(0), u32(0)),
			protocol.RegionInfo{Argsz: 48, Flags: 7, Index: 2, Size: 8192, Sparse: []protocol.Area{}}},
		{"io fds", protocol.CommandRegionIOFDs, false, bytesOf(t, u32(16), u32(0), u32(1), u32(0)), protocol.RegionIOFDs{Argsz: 16, Index: 1}},
		{"io fds without room", protocol.CommandRegionIOFDs, true, bytesOf(t, u32(96), u32(0), u32(1), u32(2)), protocol.RegionIOFDs{Argsz: 96, Index: 1, Count: 2}},
		{"io fds of two types", protocol.CommandRegionIOFDs, true,
			bytesOf(t, u32(96), u32(0), u32(1), u32(2), u64(4), u64(2), u32(0), u32(0), u32(1), u32(0), u64(9), u64(8), u64(4), u32(7), u32(1), u32(0), u32(0), u64(0)),
			protocol.RegionIOFDs{Argsz: 96, Index: 1, Count: 2, Entries: []protocol.IOEventfd{{Offset: 4, Size: 2, Match: true, Value: 9}}}},
		{"irq info", protocol.CommandIRQInfo, false, bytesOf(t, u32(16), u32(0), u32(2), u32(0)), protocol.IRQInfo{Argsz: 16, Index: 2}},
		{"disable irqs", protocol.CommandSetIRQs, false, bytesOf(t, u32(20), u32(0x21), u32(2), u32(0), u32(0)),
			protocol.SetIRQs{Data: protocol.IRQDataNone, Action: protocol.IRQActionTrigger, Index: 2}},
		{"connect irqs", protocol.CommandSetIRQs, false, bytesOf(t, u32(20), u32(0x24), u32(2), u32(1), u32(3)),
			protocol.SetIRQs{Data: protocol.IRQDataEventfd, Action: protocol.IRQActionTrigger, Index: 2, Start: 1, Count: 3}},
		{"read", protocol.CommandRegionRead, false, bytesOf(t, u64(4), u32(7), u32(256)), protocol.RegionAccess{Offset: 4, Region: 7, Count: 256, Data: []byte{}}},
		{"read reply", protocol.CommandRegionRead, true, bytesOf(t, u64(4), u32(7), u32(2), u16(0x201)), protocol.RegionAccess{Offset: 4, Region: 7, Count: 2, Data: []byte{1, 2}}},
		{"write", protocol.CommandRegionWrite, false, bytesOf(t, u64(4), u32(7), u32(2), u16(0x201)), protocol.RegionAccess{Offset: 4, Region: 7, Count: 2, Data: []byte{1, 2}}},
		{"write reply", protocol.CommandRegionWrite, true, bytesOf(t, u64(4), u32(7), u32(2)), protocol.RegionAccess{Offset: 4, Region: 7, Count: 2, Data: []byte{}}},
		{"read of nothing", protocol.CommandRegionRead, false, bytesOf(t, u64(math.MaxUint64), u32(7), u32(0)), protocol.RegionAccess{Offset: math.MaxUint64, Region: 7, Data: []byte{}}},
		{"DMA read", protocol.CommandDMARead, false, bytesOf(t, u64(4096), u64(8)), protocol.DMAAccess{Address: 4096, Count: 8, Data: []byte{}}},
		{"DMA write", protocol.CommandDMAWrite, false, bytesOf(t, u64(4096), u64(2), u16(1)), protocol.DMAAccess{Address: 4096, Count: 2, Data: []byte{1, 0}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decode(tt.command, tt.reply, tt.payload, 1)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	text := func(s string) []byte { return bytesOf(t, u16(0), u16(0), s) }
	sparse := func(flags, capOffset u32, rest ...any) []byte {
		return append(bytesOf(t, u32(64), flags, u32(2), capOffset, u64(8192), u64(0)), bytesOf(t, rest...)...)
	}
	const (
		version = protocol.CommandVersion
		dmaMap  = protocol.CommandDMAMap
		unmap   = protocol.CommandDMAUnmap
		regions = protocol.CommandRegionInfo
		ioFDs   = protocol.CommandRegionIOFDs
		setIRQs = protocol.CommandSetIRQs
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

		{"map cut off", dmaMap, false, make([]byte, 31), "size"},
		{"map empty", dmaMap, false, nil, "size"},
		{"map with small argsz", dmaMap, false, bytesOf(t, u32(31), u32(3), u64(0), u64(0), u64(4096)), "argsz"},
		{"map too long", dmaMap, false, bytesOf(t, u32(32), u32(3), u64(0), u64(0), u64(4096), u32(0)), "size"},
		{"map without access", dmaMap, false, bytesOf(t, u32(32), u32(0), u64(0), u64(0), u64(4096)), "flags"},
		{"map with unknown flags", dmaMap, false, bytesOf(t, u32(32), u32(7), u64(0), u64(0), u64(4096)), "flags"},
		{"map of nothing", dmaMap, false, bytesOf(t, u32(32), u32(3), u64(0), u64(0), u64(0)), "size of the range"},
		{"map address wraps", dmaMap, false, bytesOf(t, u32(32), u32(3), u64(0), u64(math.MaxUint64-4095), u64(8192)), "address"},
		{"map offset wraps", dmaMap, false, bytesOf(t, u32(32), u32(3), u64(math.MaxUint64-4095), u64(0), u64(8192)), "offset"},

		{"unmap cut off", unmap, false, make([]byte, 23), "size"},
		{"unmap with small argsz", unmap, false, bytesOf(t, u32(8), u32(0), u64(0), u64(4096)), "argsz"},
		{"unmap with dirty bitmap", unmap, false, bytesOf(t, u32(24), u32(1), u64(0), u64(4096)), "flags"},
		{"unmap with all flags", unmap, false, bytesOf(t, u32(24), u32(3), u64(0), u64(0)), "flags"},
		{"unmap all of a range", unmap, false, bytesOf(t, u32(24), u32(2), u64(0), u64(4096)), "size of the range"},
		{"unmap all at an address", unmap, false, bytesOf(t, u32(24), u32(2), u64(4096), u64(0)), "size of the range"},
		{"unmap nothing", unmap, false, bytesOf(t, u32(24), u32(0), u64(4096), u64(0)), "size of the range"},
		{"unmap wraps", unmap, false, bytesOf(t, u32(24), u32(0), u64(4096), u64(math.MaxUint64)), "address"},

		{"device info cut off", protocol.CommandDeviceInfo, false, make([]byte, 15), "size"},
		{"device info with small argsz", protocol.CommandDeviceInfo, false, make([]byte, 16), "argsz"},
		{"irq info cut off", protocol.CommandIRQInfo, false, make([]byte, 15), "size"},
		{"irq info too long", protocol.CommandIRQInfo, false, bytesOf(t, u32(16), make([]byte, 16)), "size"},

		{"region info cut off", regions, false, make([]byte, 31), "size"},
		{"region info with small argsz", regions, false, make([]byte, 32), "argsz"},
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

		{"io fds cut off", ioFDs, false, make([]byte, 15), "size"},
		{"io fds with flags", ioFDs, false, bytesOf(t, u32(16), u32(1), u32(0), u32(0)), "flags"},
		{"io fds with count", ioFDs, false, bytesOf(t, u32(16), u32(0), u32(0), u32(1)), "count"},
		{"io fds reply cut off", ioFDs, true, make([]byte, 15), "size"},
		{"io fds reply with half an entry", ioFDs, true, bytesOf(t, u32(56), u32(0), u32(0), u32(1), make([]byte, 20)), "count"},
		{"io fds reply with libvfio-user's entry", ioFDs, true, bytesOf(t, u32(64), u32(0), u32(0), u32(1), make([]byte, 48)), "count"},
		{"io fds reply with fd that is not there", ioFDs, true, bytesOf(t, u32(56), u32(0), u32(0), u32(1), u64(0), u64(4), u32(1), u32(0), u64(0), u64(0)), "fd_index"},
		{"io fds reply that wraps", ioFDs, true, bytesOf(t, u32(56), u32(0), u32(0), u32(1), u64(math.MaxUint64), u64(4), u32(0), u32(0), u64(0), u64(0)), "offset"},

		{"irqs cut off", setIRQs, false, make([]byte, 19), "size"},
		{"irqs with small argsz", setIRQs, false, bytesOf(t, u32(3), u32(0x21), u32(2), u32(0), u32(0)), "argsz"},
		{"irqs with no data flag", setIRQs, false, bytesOf(t, u32(20), u32(0x20), u32(2), u32(0), u32(1)), "flags"},
		{"irqs with no action", setIRQs, false, bytesOf(t, u32(20), u32(0x04), u32(2), u32(0), u32(1)), "flags"},
		{"irqs with two actions", setIRQs, false, bytesOf(t, u32(20), u32(0x19), u32(2), u32(0), u32(1)), "flags"},
		{"irqs with two data flags", setIRQs, false, bytesOf(t, u32(20), u32(0x23), u32(2), u32(0), u32(1)), "flags"},
		{"irqs with unknown flag", setIRQs, false, bytesOf(t, u32(20), u32(0x61), u32(2), u32(0), u32(1)), "flags"},
		{"irqs wrap", setIRQs, false, bytesOf(t, u32(20), u32(0x24), u32(2), u32(284), u32(math.MaxUint32)), "count"},
		{"disable from vector 1 on", setIRQs, false, bytesOf(t, u32(20), u32(0x21), u32(2), u32(1), u32(0)), "count"},
		{"mask no vector", setIRQs, false, bytesOf(t, u32(20), u32(0x09), u32(2), u32(0), u32(0)), "count"},
		{"connect no vector", setIRQs, false, bytesOf(t, u32(20), u32(0x24), u32(2), u32(0), u32(0)), "count"},
		{"too few bools", setIRQs, false, bytesOf(t, u32(21), u32(0x22), u32(2), u32(0), u32(2), "\x00"), "count"},
		{"too many bools", setIRQs, false, bytesOf(t, u32(23), u32(0x22), u32(2), u32(0), u32(2), "\x00\x00\x00"), "count"},
		{"eventfds in the message", setIRQs, false, bytesOf(t, u32(24), u32(0x24), u32(2), u32(0), u32(1), u32(5)), "size"},

		{"read cut off", read, false, make([]byte, 15), "size"},
		{"read with data", read, false, bytesOf(t, u64(0), u32(0), u32(1), "x"), "count"},
		{"read wraps", read, false, bytesOf(t, u64(math.MaxUint64), u32(0), u32(2)), "offset"},
		{"read reply too short", read, true, bytesOf(t, u64(0), u32(0), u32(2), "x"), "count"},
		{"write cut off", write, false, nil, "size"},
		{"write with less data than count", write, false, bytesOf(t, u64(0), u32(0), u32(4), "xyz"), "count"},
		{"write with more data than count", write, false, bytesOf(t, u64(0), u32(0), u32(2), "xyz"), "count"},
		{"write reply with data", write, true, bytesOf(t, u64(0), u32(0), u32(1), "x"), "count"},
		{"DMA read cut off", protocol.CommandDMARead, false, make([]byte, 15), "size"},
		{"DMA write with huge count", protocol.CommandDMAWrite, false, bytesOf(t, u64(0), u64(math.MaxUint64), "x"), "count"},
		{"DMA read wraps", protocol.CommandDMARead, false, bytesOf(t, u64(4096), u64(math.MaxUint64)), "address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decode(tt.command, tt.reply, tt.payload, 1)
			var e *protocol.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %+v, %v", got, err)
			}
			if e.Message != tt.command.String() || e.Field != tt.field || e.Why == "" || !errors.Is(err, syscall.EINVAL) {
				t.Errorf("error %q: message %q, field %q, want field %q", err, e.Message, e.Field, tt.field)
			}
		})
	}
}

func TestDecodeHeader(t *testing.T) {
	tests := []struct {
		name       string
		size       u32
		flags      protocol.Flags
		field      string
		wantsReply bool
	}{
		{"command", 16, 0, "", true},
		{"command without reply", 16, protocol.FlagNoReply, "", false},
		{"reply", 16, protocol.FlagReply, "", false},
		{"error", 16, protocol.FlagReply | protocol.FlagError, "", false},
		{"large", math.MaxUint32, 0, "", true},
		{"smaller than a header", 15, 0, "size", true},
		{"of no size", 0, 0, "size", true},
		{"of no type", 16, 2, "flags", true},
		{"of the last type", 16, 15, "flags", true},
		{"with reserved flag", 16, 0x40, "flags", true},
		{"with last flag", 16, 1 << 31, "flags", true},
		{"command with error", 16, protocol.FlagError, "flags", true},
		{"error without the type of a reply, as old servers send it", 16, protocol.FlagError | protocol.FlagNoReply, "flags", false},
		{"reply without reply", 16, protocol.FlagReply | protocol.FlagNoReply, "flags", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := protocol.Header{ID: 9, Command: protocol.CommandDeviceReset, Size: tt.size, Flags: tt.flags, Errno: 5}
			got, err := protocol.DecodeHeader((*[16]byte)(want.Append(nil)))
			if got != want {
				t.Errorf("got %+v", got)
			}
			var e *protocol.Error
			if tt.field == "" && err != nil || tt.field != "" && (!errors.As(err, &e) || e.Field != tt.field) {
				t.Errorf("error %v, want field %q", err, tt.field)
			}
			if got.WantsReply() != tt.wantsReply {
				t.Errorf("WantsReply is %v", got.WantsReply())
			}
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
		if got := (protocol.Header{Flags: tt.flags, Errno: tt.errno}).Failure(); got != tt.want {
			t.Errorf("flags %#x, errno %d: %v, want %v", tt.flags, tt.errno, got, tt.want)
		}
	}
}

func TestCommandNames(t *testing.T) {
	seen := map[string]bool{}
	for c := protocol.Command(1); c < protocol.Commands; c++ {
		if seen[c.String()] || c.String() == "" || !c.Known() {
			t.Errorf("command %d is called %q", c, c)
		}
		seen[c.String()] = true
	}
	for _, c := range []protocol.Command{0, protocol.Commands, math.MaxUint16} {
		if c.Known() || c.String() == "" {
			t.Errorf("command %d is called %q", uint16(c), c)
		}
	}
}
