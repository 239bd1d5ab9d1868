package tcpip

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"time"

	gvisor "gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// mostPing is the most payload of an echo request, in bytes.
const mostPing = 65000

// Ping sends an echo request with size bytes of payload, 0 to 65000, and returns when its answer has come. It fails with the cause of
// ctx if none comes.
func (s *Stack) Ping(ctx context.Context, to netip.Addr, size int) (time.Duration, error) {
	if err := s.usable(); err != nil {
		return 0, err
	}
	if size < 0 || size > mostPing {
		return 0, fmt.Errorf("%w: a payload of %d bytes: 0 to %d", ErrConfig, size, mostPing)
	}
	full, protocol := fullAddress(netip.AddrPortFrom(to.Unmap(), 0))
	transport, reply := icmp.ProtocolNumber4, byte(header.ICMPv4EchoReply)
	if to.Unmap().Is6() {
		transport, reply = icmp.ProtocolNumber6, byte(header.ICMPv6EchoReply)
	}
	var queue waiter.Queue
	ep, e := s.s.NewEndpoint(transport, protocol, &queue)
	if e != nil {
		return 0, s.error("ping", e)
	}
	defer ep.Close()
	if e := ep.Connect(full); e != nil {
		return 0, s.error("ping "+to.String(), e)
	}
	ready := make(chan struct{}, 1)
	entry := waiter.NewFunctionEntry(waiter.ReadableEvents|waiter.EventErr|waiter.EventHUp, func(waiter.EventMask) {
		select {
		case ready <- struct{}{}:
		default:
		}
	})
	queue.EventRegister(&entry)
	defer queue.EventUnregister(&entry)
	began := time.Now()
	if _, e := ep.Write(bytes.NewReader(echo(to.Unmap(), size)), gvisor.WriteOptions{}); e != nil {
		return 0, s.error("ping "+to.String(), e)
	}
	for {
		var got bytes.Buffer
		_, e := ep.Read(&got, gvisor.ReadOptions{})
		if e == nil {
			if b := got.Bytes(); len(b) == header.ICMPv4MinimumSize+size && b[0] == reply {
				return time.Since(began), nil
			}
			continue
		}
		if _, block := e.(*gvisor.ErrWouldBlock); !block {
			return 0, s.error("ping "+to.String(), e)
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return 0, fmt.Errorf("ping %s: %w", to, context.Cause(ctx))
		}
	}
}

// echo is an echo request. The stack fills in its identifier and, for IPv6, its checksum.
func echo(to netip.Addr, size int) []byte {
	b := make([]byte, header.ICMPv4MinimumSize+size)
	if to.Is6() {
		header.ICMPv6(b).SetType(header.ICMPv6EchoRequest)
		return b
	}
	h := header.ICMPv4(b)
	h.SetType(header.ICMPv4Echo)
	h.SetSequence(1)
	h.SetChecksum(^checksum.Checksum(b, 0))
	return b
}
