package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// The messages of the socket, described in the package's documentation.
const (
	messageSize = 32
	// magic stands in both greetings: "TZSM", little-endian.
	magic = 0x4d535a54
	// version is the one that this side speaks.
	version = 3

	flagShare   = 1
	flagBarrier = 2
	flagWrite   = 4
	flagsShift  = 32

	// exportWritable in an export says that the peer may write.
	exportWritable = 1
)

type kind uint32

const (
	kindHello kind = iota + 1
	kindWelcome
	kindReady
	kindRefuse
	kindLink
	kindLinkSeen
	kindExport
	kindExported
	kindUnexport
	kindUnexported
	kindGoodbye
	kindTable
	kindMarks
)

// files is the number of descriptors that come with a message.
func (k kind) files() int {
	switch k {
	case kindWelcome:
		return 2
	case kindHello, kindExport, kindTable, kindMarks:
		return 1
	}
	return 0
}

// Reasons of a refusal.
const (
	refuseBusy = iota + 1
	refuseVersion
	refuseHello
	refuseMemory
)

type message struct {
	kind    kind
	id      uint32
	a, b, c uint64
}

func (m *message) encode() [messageSize]byte {
	var p [messageSize]byte
	binary.LittleEndian.PutUint32(p[0:], uint32(m.kind))
	binary.LittleEndian.PutUint32(p[4:], m.id)
	binary.LittleEndian.PutUint64(p[8:], m.a)
	binary.LittleEndian.PutUint64(p[16:], m.b)
	binary.LittleEndian.PutUint64(p[24:], m.c)
	return p
}

func decode(p []byte) (message, error) {
	if len(p) != messageSize {
		return message{}, broken("size of a message", uint64(len(p)), "32 bytes")
	}
	return message{
		kind: kind(binary.LittleEndian.Uint32(p[0:])), id: binary.LittleEndian.Uint32(p[4:]),
		a: binary.LittleEndian.Uint64(p[8:]), b: binary.LittleEndian.Uint64(p[16:]), c: binary.LittleEndian.Uint64(p[24:]),
	}, nil
}

// greeting has the content of hello and welcome. The ring is the listener's to choose.
type greeting struct {
	flags     uint32
	mtu, ring int
}

func (g *greeting) message(k kind) message {
	return message{kind: k, id: magic, b: uint64(g.mtu), c: uint64(g.ring),
		a: version | uint64(g.flags)<<flagsShift}
}

// greetingOf checks what both greetings have in common.
func greetingOf(m message) (greeting, error) {
	g := greeting{flags: uint32(m.a >> flagsShift)}
	switch {
	case m.id != magic:
		return g, broken("magic number of a greeting", uint64(m.id), fmt.Sprintf("%#x", uint32(magic)))
	case uint32(m.a) != version:
		return g, fmt.Errorf("%w: the peer speaks %d, this side %d", ErrVersion, uint32(m.a), version)
	case m.b < datasheet.MinMTU || m.b > datasheet.MaxMTU:
		return g, broken("MTU", m.b, fmt.Sprintf("%d to %d", datasheet.MinMTU, datasheet.MaxMTU))
	case m.kind == kindWelcome && m.c > MaxRing:
		return g, broken("size of a ring", m.c, fmt.Sprintf("at most %d", MaxRing))
	}
	g.mtu, g.ring = int(m.b), int(m.c)
	return g, nil
}

// greeting is that of this side.
func (p *Port) greeting(ring int) greeting {
	g := greeting{mtu: p.options.MTU, ring: ring}
	if p.options.Share {
		g.flags |= flagShare
	}
	if p.options.ShareWrite {
		g.flags |= flagWrite
	}
	if line.HasBarrier() {
		g.flags |= flagBarrier
	}
	return g
}

// refusal is the error that a refusal is to who connects.
func refusal(m message) error {
	switch m.a {
	case refuseBusy:
		return ErrBusy
	case refuseVersion:
		return fmt.Errorf("%w: the listener speaks %d, this side %d", ErrVersion, m.b, version)
	case refuseHello:
		return fmt.Errorf("%w: the listener does not accept our greeting", ErrPeer)
	case refuseMemory:
		return fmt.Errorf("%w: the listener has no memory for the wire", ErrMemory)
	}
	return broken("reason of a refusal", m.a, "1 to 4")
}
