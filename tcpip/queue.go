package tcpip

import (
	"context"
	"runtime"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	gvisor "gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/stack/gro"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// queue is a queue of the port. One goroutine receives; any may send.
type queue struct {
	link   *link
	frames []ethernet.Frame // of the goroutine that receives

	mu  sync.Mutex // guards q, but for Wait, out and cut
	q   ethernet.Queue
	out []ethernet.Frame
	cut segments
}

// receive hands frames to the stack until ctx ends or the port fails.
func (q *queue) receive(ctx context.Context) error {
	var joined gro.GRO
	joined.Init(true)
	for last := time.Now(); ctx.Err() == nil; {
		q.mu.Lock()
		n, err := q.q.Receive(q.frames)
		q.mu.Unlock()
		if err != nil {
			return err
		}
		if n > 0 {
			q.deliver(&joined, q.frames[:n])
			last = time.Now()
			runtime.Gosched() // to the stack's goroutines: they run here at once, and no thread has to wake
			continue
		}
		if time.Since(last) < spin {
			idle()
			continue
		}
		q.mu.Lock()
		_, err = q.q.Unsent() // takes back the buffers of frames that have been sent
		q.mu.Unlock()
		if err != nil {
			return err
		}
		if err := q.q.Wait(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		last = time.Now()
	}
	return nil
}

// deliver copies frames into buffers of the stack, joins the segments of a flow, and hands them over.
func (q *queue) deliver(joined *gro.GRO, frames []ethernet.Frame) {
	l := q.link
	to := l.to.Load()
	filter := l.filter.Load()
	for i, f := range frames {
		b := l.pool.Bytes(f)
		if len(b) < header.EthernetMinimumSize || to == nil {
			l.stats.Malformed.Add(1)
			continue
		}
		l.seen(false, b)
		if filter != nil && (*filter)(b) {
			continue
		}
		if i+1 < len(frames) && superseded(b, l.pool.Bytes(frames[i+1])) {
			l.stats.Superseded.Add(1)
			continue
		}
		p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(buffer.NewViewWithData(b))})
		p.RXChecksumValidated = f.Flags&ethernet.L4SumGood != 0
		eth := header.Ethernet(b)
		l.ParseHeader(p)
		p.NetworkProtocolNumber = eth.Type()
		p.PktType = packetType(eth.DestinationAddress(), l.mac)
		p.NICID = nic
		l.stats.Received.Add(1)
		l.stats.ReceivedBytes.Add(uint64(len(b)))
		joined.Dispatcher = *to
		joined.Enqueue(p)
		p.DecRef()
	}
	q.mu.Lock()
	q.q.Cache().Free(frames)
	q.mu.Unlock()
	joined.Flush()
}

// packetType says for whom a frame is that goes to a station.
func packetType(to, own gvisor.LinkAddress) gvisor.PacketType {
	switch {
	case to == own:
		return gvisor.PacketHost
	case to == header.EthernetBroadcastAddress:
		return gvisor.PacketBroadcast
	case header.IsMulticastEthernetAddress(to):
		return gvisor.PacketMulticast
	}
	return gvisor.PacketOtherHost
}

// send copies packets into buffers of the port and sends them. What finds no room is dropped and counted.
func (q *queue) send(packets []*stack.PacketBuffer) {
	l := q.link
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range packets {
		q.cut.start(p)
		for more := true; more; {
			if len(q.out) == cap(q.out) {
				q.flush()
			}
			q.out = q.out[:len(q.out)+1]
			f := &q.out[len(q.out)-1]
			if q.q.Cache().Alloc(q.out[len(q.out)-1:]) == 0 {
				q.out = q.out[:len(q.out)-1]
				l.stats.NoBuffer.Add(1)
				break
			}
			size := q.cut.size()
			room := l.pool.Buffer(f.Buffer)
			if room = room[min(int(f.Offset), len(room)):]; size > len(room) || size > int(l.mtu)+header.EthernetMinimumSize {
				q.q.Cache().Free(q.out[len(q.out)-1:])
				q.out = q.out[:len(q.out)-1]
				l.stats.TooLong.Add(1)
				break
			}
			more = q.cut.next(room, nil)
			f.Length = uint16(size)
			if q.cut.open && !q.cut.sums {
				f.Flags, f.L2, f.L3 = q.cut.request(), header.EthernetMinimumSize, uint8(q.cut.tcp-q.cut.ip)
			}
			l.seen(true, room[:size])
		}
	}
	q.flush()
}

// flush sends the frames of out. If the ring is full it waits a little for the device, then gives up.
func (q *queue) flush() {
	l, sent := q.link, 0
	for tries := 0; sent < len(q.out) && tries < 64; tries++ {
		n, err := q.q.Send(q.out[sent:])
		for _, f := range q.out[sent : sent+n] {
			l.stats.SentBytes.Add(uint64(f.Length))
		}
		if sent += n; err != nil {
			break // the goroutine that receives meets the reason too
		}
		if n == 0 {
			if _, err := q.q.Unsent(); err != nil {
				break
			}
			runtime.Gosched()
		}
	}
	l.stats.Sent.Add(uint64(sent))
	l.stats.RingFull.Add(uint64(len(q.out) - sent))
	q.q.Cache().Free(q.out[sent:])
	q.out = q.out[:0]
}
