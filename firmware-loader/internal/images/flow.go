package images

import (
	"github.com/cilium/ebpf/asm"
)

// Key of a flow, as the maps of acl and count have it: 40 bytes, numbers in network
// order, IPv4 addresses as ::ffff:a.b.c.d (RFC 4291, 2.5.5.2).
const (
	FlowSource          = 0  // 16 bytes
	FlowDestination     = 16 // 16 bytes
	FlowSourcePort      = 32 // 2 bytes; ports are 0 unless the protocol is TCP or UDP
	FlowDestinationPort = 34 // 2 bytes
	FlowProtocol        = 36 // 1 byte, then 3 of zeros
	FlowKeySize         = 40
)

// Offsets in a frame. Ethernet header (IEEE 802.3), IPv4 header (RFC 791, 3.1), IPv6
// header (RFC 8200, 3). TCP and UDP begin with the two ports.
const (
	etherType = 12
	ipAt      = 14

	ip4Flags       = ipAt + 6
	ip4Protocol    = ipAt + 9
	ip4Source      = ipAt + 12
	ip4Destination = ipAt + 16
	ip4Least       = ipAt + 20

	ip6Next        = ipAt + 6
	ip6Source      = ipAt + 8
	ip6Destination = ipAt + 24
	ip6Least       = ipAt + 40

	// What a 16-bit load of a little-endian machine gives for the EtherTypes of
	// IPv4 (0x0800) and IPv6 (0x86dd).
	typeIP4 = 0x0008
	typeIP6 = 0xdd86
	// fragmented are "more fragments" and the fragment's offset, loaded likewise.
	fragmented = 0xff3f

	protocolTCP = 6
	protocolUDP = 17
)

// frameBounds loads R6 with the frame's first byte and R7 with its end, from the
// context in R1.
func frameBounds() asm.Instructions {
	return asm.Instructions{
		note(asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), "data"),
		note(asm.LoadMem(asm.R7, asm.R1, 4, asm.Word), "data_end"),
	}
}

// need jumps to label unless n bytes from register are inside of the frame.
func need(register asm.Register, n int32, label string) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, register),
		asm.Add.Imm(asm.R1, n),
		asm.JGT.Reg(asm.R1, asm.R7, label),
	}
}

// transport4 leaves in R8 where the ports of an IPv4 packet are, and jumps to none if
// it has none: another protocol, or not the first fragment. R9 is the protocol.
func transport4(none string) asm.Instructions {
	code := asm.Instructions{
		note(asm.LoadMem(asm.R1, asm.R6, ip4Flags, asm.Half), "fragments have no ports"),
		asm.And.Imm(asm.R1, fragmented),
		asm.JNE.Imm(asm.R1, 0, none),
		note(asm.LoadMem(asm.R1, asm.R6, ipAt, asm.Byte), "header length in words"),
		asm.And.Imm(asm.R1, 0xf),
		asm.LSh.Imm(asm.R1, 2),
		asm.Mov.Reg(asm.R8, asm.R6),
		asm.Add.Reg(asm.R8, asm.R1),
		asm.Add.Imm(asm.R8, ipAt),
	}
	return append(code, hasPorts(none)...)
}

// hasPorts jumps to none unless R9 is a protocol with ports that are in the frame,
// at R8.
func hasPorts(none string) asm.Instructions {
	code := asm.Instructions{
		asm.JEq.Imm(asm.R9, protocolTCP, none+"-ports"),
		asm.JNE.Imm(asm.R9, protocolUDP, none),
	}
	bounds := need(asm.R8, 4, none)
	bounds[0] = bounds[0].WithSymbol(none + "-ports")
	return append(code, bounds...)
}

// isIP4 goes on if the frame has a sound IPv4 header, goes to six if it is IPv6, and
// to other otherwise. R9 is the protocol.
func isIP4(six, other string) asm.Instructions {
	code := need(asm.R6, ipAt, other)
	code = append(code,
		note(asm.LoadMem(asm.R1, asm.R6, etherType, asm.Half), "EtherType"),
		asm.JEq.Imm(asm.R1, typeIP6, six),
		asm.JNE.Imm(asm.R1, typeIP4, other),
	)
	code = append(code, need(asm.R6, ip4Least, other)...)
	return append(code,
		note(asm.LoadMem(asm.R1, asm.R6, ipAt, asm.Byte), "version 4, 20 bytes or more"),
		asm.JLT.Imm(asm.R1, 0x45, other),
		asm.JGT.Imm(asm.R1, 0x4f, other),
		note(asm.LoadMem(asm.R9, asm.R6, ip4Protocol, asm.Byte), "protocol"),
	)
}

// isIP6 starts at the label six and goes on if the frame has an IPv6 header. R9 is
// the protocol, unless there are extension headers, and R8 where its ports are.
func isIP6(six, other string) asm.Instructions {
	code := need(asm.R6, ip6Least, other)
	code[0] = code[0].WithSymbol(six)
	return append(code,
		note(asm.LoadMem(asm.R9, asm.R6, ip6Next, asm.Byte), "next header"),
		asm.Mov.Reg(asm.R8, asm.R6),
		asm.Add.Imm(asm.R8, ip6Least),
	)
}

// flowKey writes the flow's key to the stack, FlowKeySize bytes below R10, and jumps
// to other if the frame is not of IP.
func flowKey(other string) asm.Instructions {
	key := func(field int16) int16 { return field - FlowKeySize }
	code := asm.Instructions{asm.Mov.Imm(asm.R1, 0)}
	for at := int16(0); at < FlowKeySize; at += 8 {
		code = append(code, asm.StoreMem(asm.R10, key(at), asm.R1, asm.DWord))
	}
	code = append(code, isIP4("flow6", other)...)
	// 10 bytes of zeros, then two of ones, as one word of a little-endian machine.
	for _, a := range []struct{ from, to int16 }{{ip4Source, FlowSource}, {ip4Destination, FlowDestination}} {
		code = append(code,
			asm.StoreImm(asm.R10, key(a.to+8), -0x10000, asm.Word),
			asm.LoadMem(asm.R1, asm.R6, a.from, asm.Word),
			asm.StoreMem(asm.R10, key(a.to+12), asm.R1, asm.Word),
		)
	}
	code = append(code, asm.StoreMem(asm.R10, key(FlowProtocol), asm.R9, asm.Byte))
	code = append(code, transport4("flow-ready")...)
	code = append(code, asm.Ja.Label("flow-ports"))
	code = append(code, isIP6("flow6", other)...)
	for at := int16(0); at < 32; at += 4 { // source and destination stand in a row
		code = append(code,
			asm.LoadMem(asm.R1, asm.R6, ip6Source+at, asm.Word),
			asm.StoreMem(asm.R10, key(FlowSource+at), asm.R1, asm.Word),
		)
	}
	code = append(code, asm.StoreMem(asm.R10, key(FlowProtocol), asm.R9, asm.Byte))
	ports := hasPorts("flow-none")
	code = append(code, ports...)
	return append(code,
		note(asm.LoadMem(asm.R1, asm.R8, 0, asm.Word), "ports").WithSymbol("flow-ports"),
		asm.StoreMem(asm.R10, key(FlowSourcePort), asm.R1, asm.Word),
		asm.Ja.Label("flow-ready"),
		asm.Ja.Label("flow-ready").WithSymbol("flow-none"),
	)
}
