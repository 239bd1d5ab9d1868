package descriptors

import (
	"fmt"
	"net"
)

// Code is a VIA return code as an error. Package via documents the codes, by the same
// names. Values 1 to 16 are VIA's own numbers (vipl.h; 15 and 16 are names from a later header); from 32 on
// they are this project's, and most refine a code of VIA's, which they also match.
type Code uint8

// VIA's return codes.
const (
	ErrNotDone Code = 1 + iota
	ErrInvalidParameter
	ErrResource
	ErrTimeout
	ErrReject
	ErrInvalidReliability
	ErrInvalidMTU
	ErrInvalidQoS
	ErrInvalidPtag
	ErrInvalidRDMARead
	ErrDescriptor
	ErrInvalidState
	ErrNameService
	ErrNoMatch
	ErrNotReachable
	ErrNotSupported
)

// Codes that VIA does not have.
const (
	ErrQueueFull Code = 32 + iota
	ErrQueueEmpty
	ErrClosed
	ErrDevice
	ErrCanceled
	ErrDisconnected
	ErrPeerLost
	ErrConnectionBroken
	ErrWithdrawn
	ErrProtocol
	ErrPathMTU
)

var codeTexts = map[Code]string{
	ErrNotDone:            "not done yet",
	ErrInvalidParameter:   "invalid parameter",
	ErrResource:           "out of resources, or object in use",
	ErrTimeout:            "timeout",
	ErrReject:             "rejected by the remote side",
	ErrInvalidReliability: "invalid reliability level",
	ErrInvalidMTU:         "invalid maximum transfer size",
	ErrInvalidQoS:         "invalid quality of service",
	ErrInvalidPtag:        "invalid protection tag",
	ErrInvalidRDMARead:    "RDMA read is not supported",
	ErrDescriptor:         "descriptor completed in error",
	ErrInvalidState:       "VI is in the wrong state",
	ErrNameService:        "name service error",
	ErrNoMatch:            "no one waits with this discriminator",
	ErrNotReachable:       "remote side not reachable",
	ErrNotSupported:       "not supported",
	ErrQueueFull:          "queue is full",
	ErrQueueEmpty:         "queue is empty",
	ErrClosed:             "closed",
	ErrDevice:             "device failure",
	ErrCanceled:           "cancelled",
	ErrDisconnected:       "the peer has disconnected",
	ErrPeerLost:           "the peer is lost: it no longer answers",
	ErrConnectionBroken:   "the connection broke by an error",
	ErrWithdrawn:          "the client no longer waits",
	ErrProtocol:           "the other side does not keep to the protocol of a Conn",
	ErrPathMTU:            "small frames arrive, and those as large as the MTU do not",
}

// Error says in words what the code means.
func (c Code) Error() string {
	if s, ok := codeTexts[c]; ok {
		return s
	}
	return fmt.Sprintf("VIA code %d", uint8(c))
}

// VIA returns the code that VIA itself has for c: c, or what c refines. It is
// zero if VIA has none.
func (c Code) VIA() Code {
	switch c {
	case ErrQueueFull, ErrDevice:
		return ErrResource
	case ErrQueueEmpty:
		return ErrDescriptor
	case ErrClosed:
		return ErrInvalidParameter
	case ErrCanceled, ErrDisconnected, ErrPeerLost, ErrConnectionBroken, ErrWithdrawn, ErrProtocol:
		return 0
	case ErrPathMTU:
		return ErrNotReachable
	}
	return c
}

// Is lets a refined code match the one that it refines, and ErrClosed net.ErrClosed.
// ErrPathMTU is of an attempt to connect or of a connection, so it refines
// ErrConnectionBroken too.
func (c Code) Is(target error) bool {
	t, ok := target.(Code)
	if !ok && c == ErrClosed {
		return target == net.ErrClosed
	}
	return ok && t != 0 && (t == c.VIA() || c == ErrPathMTU && t == ErrConnectionBroken)
}

// Finer returns a new sentinel error that says more than c: text. It matches itself,
// c, and what c refines.
func (c Code) Finer(text string) error { return &finer{c, text} }

type finer struct {
	code Code
	text string
}

func (f *finer) Error() string { return f.text }
func (f *finer) Unwrap() error { return f.code }
