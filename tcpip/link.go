package tcpip

import (
	"errors"
	"sync"
	"sync/atomic"

	gvisor "gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/capture"
)

// burst is the number of frames that a queue receives or sends at a time.
const burst = 64

// link is a port as a link of the stack.
type link struct {
	linkBase
	port   ethernet.Port
	pool   *ethernet.Pool
	queues []*queue
	filter atomic.Pointer[func(frame []byte) bool] // takes frames that are not the stack's
	onFail func(error)

	captured capture.Capture
	watched  atomic.Bool // watch is set
	watching sync.Mutex  // guards watch
	watch    func(sent bool, frame []byte)
}

// Counters hold the counts of a Stack about its port. All of them only grow.
type Counters struct {
	Received      atomic.Uint64 `json:"received" help:"Frames that the stack was given." unit:"frames"`
	ReceivedBytes atomic.Uint64 `json:"received_bytes" help:"Bytes of the frames that the stack was given." unit:"bytes"`
	Sent          atomic.Uint64 `json:"sent" help:"Frames that the port has taken." unit:"frames"`
	SentBytes     atomic.Uint64 `json:"sent_bytes" help:"Bytes of the frames that the port has taken." unit:"bytes"`
	Superseded    atomic.Uint64 `json:"superseded" help:"Received acknowledgements that the stack was not given, as the next frame acknowledged more." unit:"frames"`
	Malformed     atomic.Uint64 `json:"malformed" help:"Received frames that are too short for their header, or not in a buffer of the pool." unit:"frames"`
	NoBuffer      atomic.Uint64 `json:"no_buffer" help:"Frames that were not sent as the pool had no buffer." unit:"frames"`
	RingFull      atomic.Uint64 `json:"ring_full" help:"Frames that found no room in the send ring." unit:"frames"`
	TooLong       atomic.Uint64 `json:"too_long" help:"Frames that were not sent as they were longer than the MTU." unit:"frames"`
}

// newLink makes the link of a port, which it does not own.
func newLink(port ethernet.Port, onFail func(error)) *link {
	info := port.Info()
	mac := port.MAC()
	l := &link{port: port, pool: info.Options.Pool, onFail: onFail}
	l.mac, l.mtu, l.capabilities = gvisor.LinkAddress(mac[:]), uint32(info.Options.MTU), stack.CapabilityResolutionRequired
	for i := range info.Options.Queues {
		l.queues = append(l.queues, &queue{link: l, q: port.Queue(i), frames: make([]ethernet.Frame, burst), out: make([]ethernet.Frame, 0, burst),
			cut: segments{sums: info.Options.Offloads&ethernet.OffloadSendSum == 0}})
	}
	return l
}

// start begins to receive.
func (l *link) start() {
	ctx := l.begin()
	for _, q := range l.queues {
		l.workers.Go(func() {
			if err := q.receive(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, ethernet.ErrClosed) {
				l.onFail(err)
			}
		})
	}
}

// WritePackets implements stack.LinkWriter. Frames that cannot be sent are dropped and counted: TCP sends them again.
func (l *link) WritePackets(list stack.PacketBufferList) (int, gvisor.Error) {
	packets := list.AsSlice()
	for first := 0; first < len(packets); {
		// A list is of one flow most of the time.
		end := first + 1
		for end < len(packets) && packets[end].Hash == packets[first].Hash {
			end++
		}
		l.queues[packets[first].Hash%uint32(len(l.queues))].send(packets[first:end])
		first = end
	}
	return len(packets), nil
}

// MaxHeaderLength implements stack.NetworkLinkEndpoint.
func (l *link) MaxHeaderLength() uint16 { return header.EthernetMinimumSize }

// ARPHardwareType implements stack.NetworkLinkEndpoint.
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// AddHeader implements stack.NetworkLinkEndpoint.
func (l *link) AddHeader(p *stack.PacketBuffer) {
	header.Ethernet(p.LinkHeader().Push(header.EthernetMinimumSize)).Encode(&header.EthernetFields{
		SrcAddr: p.EgressRoute.LocalLinkAddress, DstAddr: p.EgressRoute.RemoteLinkAddress, Type: p.NetworkProtocolNumber})
}

// ParseHeader implements stack.NetworkLinkEndpoint.
func (l *link) ParseHeader(p *stack.PacketBuffer) bool {
	_, ok := p.LinkHeader().Consume(header.EthernetMinimumSize)
	return ok
}
