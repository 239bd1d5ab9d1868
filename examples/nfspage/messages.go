package main

import (
	"bytes"
	"encoding/binary"

	xdr "github.com/stellar/go-xdr/xdr3"
)

// What this example says of NFS version 3, as an XDR library encodes it (RFC 5531, 9; RFC 1813,
// 2.5 and 3.3.6). A pointer stands for XDR's optional data.
type (
	auth struct {
		Flavor uint32
		Body   []byte
	}
	readCall struct {
		XID, MessageType, RPCVersion, Program, Version, Procedure uint32
		Credentials, Verifier                                     auth
		File                                                      []byte
		Offset                                                    uint64
		Count                                                     uint32
	}
	// replyHead begins a reply. If Status is OK a readResult follows, and then the data.
	replyHead struct {
		XID, MessageType, ReplyStatus uint32
		Verifier                      auth
		AcceptStatus, Status          uint32
		Attributes                    *attributes
	}
	readResult struct {
		Count  uint32
		EOF    bool
		Length uint32
	}
	attributes struct {
		Type, Mode, Links, UID, GID uint32
		Size, Used                  uint64
		Device                      [2]uint32
		FileSystem, FileID          uint64
		Access, Modify, Change      [2]uint32
	}
)

const (
	rpcCall, rpcReply = 0, 1
	rpcVersion        = 2
	nfsProgram        = 100003
	nfsVersion        = 3
	nfsRead           = 6
)

// Values of NFS's status.
const (
	statusOK     = 0
	statusIO     = 5
	statusStale  = 70
	statusNoCall = 10004 // NFS3ERR_NOTSUPP
)

// headersSize is the length of IP's and UDP's headers before a message.
const headersSize = 28

// packet encodes the parts of a message and puts headers of IP and UDP before it, for data of so
// many bytes behind it.
func packet(toServer bool, data int, parts ...any) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, headersSize))
	for _, p := range parts {
		if _, err := xdr.Marshal(b, p); err != nil {
			return nil, err
		}
	}
	p, be := b.Bytes(), binary.BigEndian
	length := len(p) + (data+3)&^3
	copy(p, []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0x03, 0xff, 0x08, 0x01})
	if !toServer {
		p[15], p[19] = p[19], p[15]
		copy(p[20:], []byte{0x08, 0x01, 0x03, 0xff})
	}
	be.PutUint16(p[2:], uint16(length))
	be.PutUint16(p[24:], uint16(length-20))
	sum := uint32(0) // RFC 791, 3.1; that of UDP is none, as AAL5 has a CRC
	for i := 0; i < 20; i += 2 {
		sum += uint32(be.Uint16(p[i:]))
	}
	be.PutUint16(p[10:], ^uint16(sum+sum>>16))
	return p, nil
}
