package tcpip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	gvisor "gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/stack/gro"

	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// RingPage is the payload of a packet over a ring, and RingMTU the longest IP packet: headers in the control message of 128 bytes, the rest in
// the page attached to it (CS-1997-20, section 2.2: 8320 bytes).
const (
	RingPage = 8192
	RingMTU  = ring.MessageSize + RingPage
)

// ringBurst is the number of packets after which the stack's goroutines run: they acknowledge, and the other end sends on, while this one
// still receives. ringFull is how long a sender waits for room: a loss costs TCP more, and the other end's threads may run that late.
const (
	ringBurst = 16
	ringFull  = 10 * time.Millisecond
)

// ringLink is a connected ring as a link of the stack: the other end is the only host on it. The tag of a message is the number of
// its bytes that are the packet's front; what the packet has behind them is the payload.
type ringLink struct {
	linkBase
	r      *ring.Ring
	pages  *via.Memory
	onFail func(error)

	mu    sync.Mutex // guards the sending side
	free  []int      // pages that no message has
	ended []func(error)
	cut   segments
}

// OnRing runs a stack over a connected ring, both of whose ends are such stacks: two processes, or two hosts over any wire. The ring
// is the Stack's from then on, and must carry payloads of 8 KiB or more; on error the caller keeps it. The
// configuration needs Addresses, and Config.MTU is RingMTU if zero.
func OnRing(ctx context.Context, nic *via.NIC, r *ring.Ring, c Config) (*Stack, error) {
	c.Queues, c.Buffers, c.MTU = 1, 1, cmp.Or(c.MTU, RingMTU)
	if len(c.Addresses) == 0 || r.MaxPayload() < RingPage || c.MTU > RingMTU {
		return nil, fmt.Errorf("%w: over a ring a stack needs Addresses, payloads of %d bytes and an MTU of at most %d: there are %d addresses, %d bytes, and %d",
			ErrConfig, RingPage, RingMTU, len(c.Addresses), r.MaxPayload(), c.MTU)
	}
	pages, err := nic.Alloc(ctx, r.Entries()*RingPage, via.MemoryAttributes{})
	if err != nil {
		return nil, err
	}
	l := &ringLink{r: r, pages: pages}
	// A wire that may damage frames has a checksum of its own.
	l.mtu, l.capabilities = uint32(c.MTU), stack.CapabilityTXChecksumOffload|stack.CapabilityRXChecksumOffload
	for i := range r.Entries() {
		l.free = append(l.free, i)
		l.ended = append(l.ended, func(error) { l.free = append(l.free, i) }) // GetSend calls it, under mu
	}
	s := &Stack{address: "ring:" + r.RemoteAddress().String(), config: c, end: l, counters: &l.stats}
	l.onFail = s.fail
	s.release = func() error { return errors.Join(r.Close(), pages.Close(context.Background())) }
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, pages.Close(ctx))
	}
	return s, nil
}

// start begins to receive.
func (l *ringLink) start() {
	ctx := l.begin()
	l.workers.Go(func() {
		if err := l.receive(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
			l.onFail(err)
		}
	})
}

// receive hands packets to the stack until ctx or the connection ends.
func (l *ringLink) receive(ctx context.Context) error {
	var joined gro.GRO
	joined.Init(true)
	for n, last := 0, time.Now(); ctx.Err() == nil; {
		e, err := l.r.GetRecv()
		if n == ringBurst || n > 0 && err == via.ErrNotDone {
			n, last = 0, time.Now()
			joined.Flush()
			runtime.Gosched() // to the stack's goroutines
		}
		if err == via.ErrNotDone {
			if time.Since(last) < spin {
				idle()
				continue
			}
			if e, err = l.r.Wait(ctx); ctx.Err() != nil {
				if e != nil {
					_ = l.r.ReleaseRecv(e)
				}
				return nil
			}
			last = time.Now()
		}
		if e == nil {
			return err
		}
		if err == nil {
			l.deliver(&joined, e)
		}
		if err := l.r.ReleaseRecv(e); err != nil {
			return err
		}
		n++
	}
	return nil
}

// deliver copies a packet into a buffer of the stack and hands it over.
func (l *ringLink) deliver(joined *gro.GRO, e *ring.Entry) {
	to := l.to.Load()
	front, tagged := e.Tag()
	if !tagged || front < header.IPv4MinimumSize || front > ring.MessageSize || to == nil || e.Discarded() > 0 {
		l.stats.Malformed.Add(1)
		return
	}
	v := buffer.NewView(int(front) + e.Length())
	_, _ = v.Write(e.Bytes()[:front])
	if e.Length() > 0 {
		_, _ = v.Write(e.Frame().Bytes()[:e.Length()])
	}
	l.stats.Received.Add(1)
	l.stats.ReceivedBytes.Add(uint64(v.Size()))
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(v)})
	defer p.DecRef()
	p.NICID, p.PktType, p.RXChecksumValidated = nic, gvisor.PacketHost, true // the wire checks, or cannot damage
	switch header.IPVersion(v.AsSlice()) {
	case header.IPv4Version:
		p.NetworkProtocolNumber = header.IPv4ProtocolNumber
	case header.IPv6Version:
		p.NetworkProtocolNumber = header.IPv6ProtocolNumber
	default:
		l.stats.Malformed.Add(1)
		return
	}
	joined.Dispatcher = *to
	joined.Enqueue(p)
}

// WritePackets implements stack.LinkWriter. A packet that finds no room is dropped and counted: TCP sends it again.
func (l *ringLink) WritePackets(list stack.PacketBufferList) (int, gvisor.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range list.AsSlice() {
		l.cut.start(p)
		for l.send() {
		}
	}
	return list.Len(), nil
}

// send sends the next packet of cut, its headers in the message and the rest in a page, and reports whether another follows.
func (l *ringLink) send() (more bool) {
	size := l.cut.size()
	if size > int(l.mtu) {
		l.stats.TooLong.Add(1)
		return false
	}
	e, err := l.entry()
	if err != nil {
		l.stats.RingFull.Add(1)
		return false
	}
	front := size
	if size > ring.MessageSize {
		front = len(l.cut.headers)
		if size-front > RingPage {
			front = ring.MessageSize
		}
	}
	message, page := e.Bytes(), []byte(nil)
	if size > front {
		// There are as many pages as entries, so there is one unless this end has lost it.
		if page = l.attach(e, size-front); page == nil {
			l.stats.NoBuffer.Add(1)
			_ = e.SetTag(0) // the other end refuses an empty message
			_ = l.r.ReleaseSend(e)
			return false
		}
	}
	more = l.cut.next(message[:front], page)
	_ = e.SetTag(uint32(front))
	if err := l.r.ReleaseSend(e); err != nil {
		l.stats.RingFull.Add(1)
		return false
	}
	l.stats.Sent.Add(1)
	l.stats.SentBytes.Add(uint64(size))
	return more
}

// attach attaches a page of so many bytes to a message; nil if there is none.
func (l *ringLink) attach(e *ring.Entry, size int) []byte {
	if len(l.free) == 0 {
		return nil
	}
	last := len(l.free) - 1
	n := l.free[last]
	f := ring.Frame{Memory: l.pages, Offset: n * RingPage, Length: size}
	if err := e.Attach(f, l.ended[n]); err != nil {
		return nil
	}
	l.free = l.free[:last]
	return f.Bytes()
}

// entry returns the next entry to send. While the ring is full it waits a little for the other end.
func (l *ringLink) entry() (*ring.Entry, error) {
	e, err := l.r.GetSend()
	for began := time.Now(); err == via.ErrQueueFull && time.Since(began) < ringFull; e, err = l.r.GetSend() {
		idle()
	}
	return e, err
}

// MaxHeaderLength implements stack.NetworkLinkEndpoint: a message has no header of the link.
func (l *ringLink) MaxHeaderLength() uint16 { return 0 }

// ARPHardwareType implements stack.NetworkLinkEndpoint.
func (l *ringLink) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader implements stack.NetworkLinkEndpoint.
func (l *ringLink) AddHeader(*stack.PacketBuffer) {}

// ParseHeader implements stack.NetworkLinkEndpoint.
func (l *ringLink) ParseHeader(*stack.PacketBuffer) bool { return true }
