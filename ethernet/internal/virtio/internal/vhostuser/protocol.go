package vhostuser

import (
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// order is the byte order of all numbers: that of the machine.
var order = binary.NativeEndian

// request says what a message asks for.
type request uint32

// The requests that a front end makes here, with their numbers.
const (
	getFeatures         request = 1
	setFeatures         request = 2
	setOwner            request = 3
	setMemTable         request = 5
	setVringNum         request = 8
	setVringAddr        request = 9
	setVringBase        request = 10
	getVringBase        request = 11
	setVringKick        request = 12
	setVringCall        request = 13
	getProtocolFeatures request = 15
	setProtocolFeatures request = 16
	getQueueNum         request = 17
	setVringEnable      request = 18
	getConfig           request = 24
	setStatus           request = 39
	getStatus           request = 40
)

var requestNames = map[request]string{
	getFeatures: "GET_FEATURES", setFeatures: "SET_FEATURES", setOwner: "SET_OWNER", setMemTable: "SET_MEM_TABLE",
	setVringNum: "SET_VRING_NUM", setVringAddr: "SET_VRING_ADDR", setVringBase: "SET_VRING_BASE",
	getVringBase: "GET_VRING_BASE", setVringKick: "SET_VRING_KICK", setVringCall: "SET_VRING_CALL",
	getProtocolFeatures: "GET_PROTOCOL_FEATURES", setProtocolFeatures: "SET_PROTOCOL_FEATURES",
	getQueueNum: "GET_QUEUE_NUM", setVringEnable: "SET_VRING_ENABLE", getConfig: "GET_CONFIG",
	setStatus: "SET_STATUS", getStatus: "GET_STATUS",
}

// String returns the request's name in the specification.
func (r request) String() string {
	if name, ok := requestNames[r]; ok {
		return name
	}
	return fmt.Sprintf("request %d", uint32(r))
}

const (
	headerSize = 12
	// maxReply is the longest payload of a reply that is read: far more than any has.
	maxReply = 512
)

// Flags of a header.
const (
	flagVersion   = 1
	versionMask   = 3
	flagReply     = 4
	flagNeedReply = 8
)

// featureProtocol among the features of the device says that there are protocol features
// (VHOST_USER_F_PROTOCOL_FEATURES).
const featureProtocol = 1 << 30

// Protocol features (VHOST_USER_PROTOCOL_F_*).
const (
	protocolMQ     = 1 << 0
	protocolAck    = 1 << 3
	protocolConfig = 1 << 9
	protocolStatus = 1 << 16
)

// noDescriptor in SET_VRING_KICK and SET_VRING_CALL says that none comes with it.
const noDescriptor = 1 << 8

// maxRegions limits the pieces of memory of SET_MEM_TABLE.
const maxRegions = 8

// appendHeader appends a header for size bytes of payload.
func appendHeader(b []byte, r request, flags uint32, size int) []byte {
	b = order.AppendUint32(b, uint32(r))
	b = order.AppendUint32(b, flags|flagVersion)
	return order.AppendUint32(b, uint32(size))
}

// words makes a payload of 32-bit numbers.
func words(v ...uint32) []byte {
	var b []byte
	for _, w := range v {
		b = order.AppendUint32(b, w)
	}
	return b
}

// number makes a payload of one 64-bit number.
func number(v uint64) []byte { return order.AppendUint64(nil, v) }

// checkHeader reads the header of a reply to r and returns the size of its payload.
func checkHeader(b *[headerSize]byte, r request) (int, error) {
	got, flags, size := request(order.Uint32(b[0:])), order.Uint32(b[4:]), order.Uint32(b[8:])
	bad := func(field string, value uint32, why string, a ...any) (int, error) {
		return 0, fmt.Errorf("%w: reply to %v: %s is %#x: %s", ethernet.ErrProtocol, r, field, value, fmt.Sprintf(why, a...))
	}
	switch {
	case flags&versionMask != flagVersion:
		return bad("flags", flags, "want version %d", flagVersion)
	case flags&flagReply == 0:
		return bad("flags", flags, "it is no reply")
	case got != r:
		return bad("request", uint32(got), "want %d", uint32(r))
	case size > maxReply:
		return bad("size", size, "want at most %#x", maxReply)
	}
	return int(size), nil
}

// checkSize checks the size of the payload of a reply to r.
func checkSize(r request, payload []byte, want int) error {
	if len(payload) != want {
		return fmt.Errorf("%w: reply to %v: size is %#x: want %#x", ethernet.ErrProtocol, r, len(payload), want)
	}
	return nil
}
