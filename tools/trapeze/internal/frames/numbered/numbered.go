// Package numbered makes frames with numbers in them, and tells from those that arrive
// which were lost, doubled, reordered or damaged.
//
// The payload of such a frame, of EtherType 0x88b6 or UDP over IPv4, begins with 16 bytes
// in network order:
//
//	0  2  0x544e for a numbered frame, 0x5445 for the end of a stream
//	2  2  bytes of the payload, these included
//	4  4  stream, which the sender has chosen at random
//	8  4  number of the frame in its stream, from 0 on; of an end, how many there were
//	12 4  CRC-32C of the payload without these four bytes
package numbered

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	// recordSize is the length of the beginning of a payload.
	recordSize  = 16
	magicNumber = 0x544e
	magicEnd    = 0x5445

	typeNumbered = 0x88b6 // the second local experimental EtherType (IEEE 802, 9.2.4)
	typeIPv4     = 0x0800
	typeTag      = 0x8100
	typeService  = 0x88a8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC of a payload.
func checksum(payload []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, payload[:12]), castagnoli, payload[recordSize:])
}

// seal writes the beginning of a payload.
func seal(payload []byte, magic uint16, stream, number uint32) {
	binary.BigEndian.PutUint16(payload, magic)
	binary.BigEndian.PutUint16(payload[2:], uint16(len(payload)))
	binary.BigEndian.PutUint32(payload[4:], stream)
	binary.BigEndian.PutUint32(payload[8:], number)
	binary.BigEndian.PutUint32(payload[12:], checksum(payload))
}

// find returns the payload of a numbered frame, its padding included; nil if it is none.
func find(frame []byte) []byte {
	at := 12
	for ; len(frame) >= at+2; at += 4 {
		switch binary.BigEndian.Uint16(frame[at:]) {
		case typeTag, typeService:
			continue
		case typeNumbered:
			return begins(frame[at+2:])
		case typeIPv4:
			ip := frame[at+2:]
			if len(ip) < 28 || ip[0] != 0x45 || ip[9] != 17 {
				return nil
			}
			return begins(ip[28:])
		}
		return nil
	}
	return nil
}

func begins(payload []byte) []byte {
	if len(payload) < recordSize {
		return nil
	}
	if magic := binary.BigEndian.Uint16(payload); magic != magicNumber && magic != magicEnd {
		return nil
	}
	return payload
}
