package images

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Value of the map "entries" of ipt: 1 if there is an entry, then its number.
const (
	EntryValid     = 0 // 4 bytes
	EntryNumber    = 4 // 4 bytes
	EntryValueSize = 8
)

// payloadTags is the number of tags that ipt knows: the immediate data of a message is one.
// Trapeze has a table of this order (USENIX 1998, section 2).
const payloadTags = 256

func iptMaps() []abi.Map {
	return []abi.Map{{Name: "entries", Type: abi.MapArray, Key: 4, Value: EntryValueSize, Entries: payloadTags}}
}

// Offsets in the wire header (descriptors/SPEC.md 8.1) and what they hold, loaded by
// a little-endian machine.
const (
	wireType      = 0xb588 // EtherType 0x88b5
	wireVersionAt = 14
	wireTypeAt    = 15
	wireFlagsAt   = 16
	wireImmediate = 56
)

// payloadTable sends the payload of a message with immediate data to the entry that
// the host has given its number. All others go where they would go anyway.
func payloadTable() asm.Instructions {
	code := append(frameBounds(), need(asm.R6, datasheet.HeaderSize, "default")...)
	code = append(code,
		asm.LoadMem(asm.R1, asm.R6, etherType, asm.Half),
		note(asm.JNE.Imm(asm.R1, wireType, "default"), "a frame of ours"),
		asm.LoadMem(asm.R1, asm.R6, wireVersionAt, asm.Byte),
		asm.JNE.Imm(asm.R1, datasheet.WireVersion, "default"),
		asm.LoadMem(asm.R1, asm.R6, wireTypeAt, asm.Byte),
		note(asm.JNE.Imm(asm.R1, int32(datasheet.FrameData), "default"), "with data"),
		asm.LoadMem(asm.R1, asm.R6, wireFlagsAt, asm.Half),
		asm.And.Imm(asm.R1, int32(datasheet.FrameImmediate)),
		note(asm.JEq.Imm(asm.R1, 0, "default"), "and a tag"),
		asm.LoadMem(asm.R1, asm.R6, wireImmediate, asm.Word),
		asm.StoreMem(asm.R10, -4, asm.R1, asm.Word),
	)
	code = append(code, lookup("entries", 4)...)
	return append(code,
		note(asm.JEq.Imm(asm.R0, 0, "default"), "a tag of the table"),
		asm.LoadMem(asm.R1, asm.R0, EntryValid, asm.Word),
		asm.JNE.Imm(asm.R1, 1, "default"),
		asm.LoadMem(asm.R0, asm.R0, EntryNumber, asm.Word),
		note(asm.LSh.Imm(asm.R0, 32), "entry in bits 63:32, the queue stays"),
		asm.LoadImm(asm.R1, int64(abi.DemuxDefault), asm.DWord),
		asm.Or.Reg(asm.R0, asm.R1),
		asm.Return(),
		asm.LoadImm(asm.R0, -1, asm.DWord).WithSymbol("default"),
		asm.Return(),
	)
}

// Queues is the number of entries of flow-steer's indirection table: as many as
// Microsoft's receive-side scaling has. The table is the map "queues": for the low
// bits of a hash, the 32-bit number of a receive queue; 0, which none has, is the
// built-in rule.
const Queues = 128

// toeplitzKey is the usual key of receive-side scaling (Microsoft, "Verifying the
// RSS Hash Calculation").
var toeplitzKey = [40]byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

// hashInput is the longest input in bytes: two IPv6 addresses and two ports.
const hashInput = 36

// toeplitz returns the hash of input: the XOR of the 32 bits of the key from bit n
// on, for each bit n of the input that is set.
func toeplitz(input []byte) (hash uint32) {
	var key [len(toeplitzKey) + 4]byte // so that there are 8 bytes from each on
	copy(key[:], toeplitzKey[:])
	for n := range 8 * len(input) {
		if input[n/8]>>(7-n%8)&1 == 1 {
			hash ^= uint32(binary.BigEndian.Uint64(key[n/8:]) >> (32 - n%8))
		}
	}
	return hash
}

// steerMaps has the hash of every value of every byte of the input: the hash of all
// is their XOR, as it is linear.
func steerMaps() []abi.Map {
	table := make([]byte, 0, 4*256*hashInput)
	input := make([]byte, hashInput)
	for at := range input {
		for value := range 256 {
			input[at] = byte(value)
			table = binary.LittleEndian.AppendUint32(table, toeplitz(input))
		}
		input[at] = 0
	}
	return []abi.Map{
		{Name: ".rodata", Type: abi.MapArray, Key: 4, Value: uint32(len(table)), Entries: 1, Flags: abi.MapReadOnly, Contents: table},
		{Name: "queues", Type: abi.MapArray, Key: 4, Value: 4, Entries: Queues},
	}
}

// hashBytes adds n bytes at an address to the hash in R5. first is their place in
// the input.
func hashBytes(address asm.Register, offset int16, first, n int) (code asm.Instructions) {
	for i := range n {
		code = append(code,
			asm.LoadMem(asm.R1, address, offset+int16(i), asm.Byte),
			asm.LSh.Imm(asm.R1, 2),
			asm.LoadMapValue(asm.R2, 0, uint32(1024*(first+i))).WithReference(".rodata"),
			asm.Add.Reg(asm.R2, asm.R1),
			asm.LoadMem(asm.R1, asm.R2, 0, asm.Word),
			asm.Xor.Reg(asm.R5, asm.R1),
		)
	}
	return code
}

// flowSteer hashes addresses and ports of TCP and UDP, and addresses of what else is
// of IP.
func flowSteer() asm.Instructions {
	code := append(frameBounds(), note(asm.Mov.Imm(asm.R5, 0), "the hash"))
	code = append(code, isIP4("steer6", "default")...)
	code = append(code, hashBytes(asm.R6, ip4Source, 0, 8)...)
	code = append(code, transport4("steer")...)
	code = append(code, hashBytes(asm.R8, 0, 8, 4)...)
	code = append(code, asm.Ja.Label("steer"))
	code = append(code, isIP6("steer6", "default")...)
	code = append(code, hashBytes(asm.R6, ip6Source, 0, 32)...)
	code = append(code, hasPorts("steer-none")...)
	code = append(code, hashBytes(asm.R8, 0, 32, 4)...)
	code = append(code,
		asm.Ja.Label("steer"),
		asm.Ja.Label("steer").WithSymbol("steer-none"),
		note(asm.And.Imm(asm.R5, Queues-1), "its low bits choose").WithSymbol("steer"),
		asm.StoreMem(asm.R10, -4, asm.R5, asm.Word),
	)
	code = append(code, lookup("queues", 4)...)
	return append(code,
		asm.JEq.Imm(asm.R0, 0, "default"),
		asm.LoadMem(asm.R0, asm.R0, 0, asm.Word),
		note(asm.JEq.Imm(asm.R0, 0, "default"), "not filled in: no queue has number 0"),
		note(asm.LoadImm(asm.R1, -1<<32, asm.DWord), "the next posted receive"),
		asm.Or.Reg(asm.R0, asm.R1),
		asm.Return(),
		asm.LoadImm(asm.R0, -1, asm.DWord).WithSymbol("default"),
		asm.Return(),
	)
}
