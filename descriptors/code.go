package descriptors

import (
	"fmt"
	"net"
)

// Code is a VIA return code as an error. Package via documents the codes, and
// gives them their names there: via.ErrNotDone is CodeNotDone. Values 1 to 16 are
// VIA's own numbers (vipl.h; 15 and 16 are names from a later header); from 32 on
// they are this project's, and most refine a code of VIA's, which they also match.
type Code uint8

// VIA's return codes.
const (
	CodeNotDone Code = 1 + iota
	CodeInvalidParameter
	CodeResource
	CodeTimeout
	CodeReject
	CodeInvalidReliability
	CodeInvalidMTU
	CodeInvalidQoS
	CodeInvalidPtag
	CodeInvalidRDMARead
	CodeDescriptor
	CodeInvalidState
	CodeNameService
	CodeNoMatch
	CodeNotReachable
	CodeNotSupported
)

// Codes that VIA does not have.
const (
	CodeQueueFull Code = 32 + iota
	CodeQueueEmpty
	CodeClosed
	CodeDevice
	CodeCanceled
	CodeDisconnected
	CodePeerLost
	CodeConnectionBroken
	CodeWithdrawn
	CodeProtocol
	CodePathMTU
)

var codeTexts = map[Code]string{
	CodeNotDone:            "not done yet",
	CodeInvalidParameter:   "invalid parameter",
	CodeResource:           "out of resources, or object in use",
	CodeTimeout:            "timeout",
	CodeReject:             "rejected by the remote side",
	CodeInvalidReliability: "invalid reliability level",
	CodeInvalidMTU:         "invalid maximum transfer size",
	CodeInvalidQoS:         "invalid quality of service",
	CodeInvalidPtag:        "invalid protection tag",
	CodeInvalidRDMARead:    "RDMA read is not supported",
	CodeDescriptor:         "descriptor completed in error",
	CodeInvalidState:       "VI is in the wrong state",
	CodeNameService:        "name service error",
	CodeNoMatch:            "no one waits with this discriminator",
	CodeNotReachable:       "remote side not reachable",
	CodeNotSupported:       "not supported",
	CodeQueueFull:          "queue is full",
	CodeQueueEmpty:         "queue is empty",
	CodeClosed:             "closed",
	CodeDevice:             "device failure",
	CodeCanceled:           "cancelled",
	CodeDisconnected:       "the peer has disconnected",
	CodePeerLost:           "the peer is lost: it no longer answers",
	CodeConnectionBroken:   "the connection broke by an error",
	CodeWithdrawn:          "the client no longer waits",
	CodeProtocol:           "the other side does not keep to the protocol of a Conn",
	CodePathMTU:            "small frames arrive, and those as large as the MTU do not",
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
	case CodeQueueFull, CodeDevice:
		return CodeResource
	case CodeQueueEmpty:
		return CodeDescriptor
	case CodeClosed:
		return CodeInvalidParameter
	case CodeCanceled, CodeDisconnected, CodePeerLost, CodeConnectionBroken, CodeWithdrawn, CodeProtocol:
		return 0
	case CodePathMTU:
		return CodeNotReachable
	}
	return c
}

// Is lets a refined code match the one that it refines, and CodeClosed net.ErrClosed.
// CodePathMTU is of an attempt to connect or of a connection, so it refines
// CodeConnectionBroken too.
func (c Code) Is(target error) bool {
	t, ok := target.(Code)
	if !ok && c == CodeClosed {
		return target == net.ErrClosed
	}
	return ok && t != 0 && (t == c.VIA() || c == CodePathMTU && t == CodeConnectionBroken)
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
