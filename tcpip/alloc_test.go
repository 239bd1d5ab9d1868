package tcpip

import (
	"context"
	"testing"

	"gvisor.dev/gvisor/pkg/buffer"
	gvisor "gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/stack/gro"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// sink is a port whose queue takes all frames, and has none.
type sink struct {
	ethernet.Port
	o     ethernet.Options
	cache *ethernet.Cache
}

func (s *sink) Info() ethernet.Info                   { return ethernet.Info{Options: s.o} }
func (s *sink) MAC() ethernet.MAC                     { return ethernet.MAC{2} }
func (s *sink) Queue(int) ethernet.Queue              { return s }
func (s *sink) Receive([]ethernet.Frame) (int, error) { return 0, nil }
func (s *sink) Unsent() (int, error)                  { return 0, nil }
func (s *sink) Cache() *ethernet.Cache                { return s.cache }
func (s *sink) Wait(context.Context) error            { return nil }
func (s *sink) Send(frames []ethernet.Frame) (int, error) {
	s.cache.Free(frames)
	return len(frames), nil
}

// nowhere takes packets.
type nowhere struct{}

func (nowhere) DeliverNetworkPacket(gvisor.NetworkProtocolNumber, *stack.PacketBuffer) {}
func (nowhere) DeliverLinkPacket(gvisor.NetworkProtocolNumber, *stack.PacketBuffer)    {}

// TestNothingIsAllocated: neither a packet that is sent nor one that is received costs an allocation of the link, beside the
// stack's own buffers, which it takes from its pools.
func TestNothingIsAllocated(t *testing.T) {
	pool := must.Get(ethernet.NewPool(ethernet.PoolOptions{Buffers: 1024}))(t)
	defer func() {
		should.OK(t, pool.Close())
	}()
	s := &sink{o: ethernet.Options{Pool: pool, Queues: 1, MTU: 1500}, cache: pool.NewCache()}
	defer s.cache.Close()
	l := newLink(s, nil)
	var list stack.PacketBufferList
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{ReserveHeaderBytes: 64, Payload: buffer.MakeWithData(make([]byte, 1000))})
	defer p.DecRef()
	list.PushBack(p)
	if n := testing.AllocsPerRun(1000, func() { _, _ = l.WritePackets(list) }); n != 0 {
		t.Errorf("a sent packet costs %v allocations", n)
	}
	l.Attach(nowhere{})
	var joined gro.GRO
	joined.Init(true)
	frames := make([]ethernet.Frame, 1)
	got := testing.AllocsPerRun(1000, func() {
		if s.cache.Alloc(frames) != 1 {
			t.Fatal("no buffer")
		}
		frames[0].Length = 1014
		l.queues[0].deliver(&joined, frames)
	})
	own := testing.AllocsPerRun(1000, func() {
		stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(buffer.NewViewWithData(make([]byte, 1014)))}).DecRef()
	})
	if got > own {
		t.Errorf("a received packet costs %v allocations, the stack's buffer for it %v", got, own)
	}
	if n := l.stats.Sent.Load(); n < 1000 || l.stats.NoBuffer.Load() != 0 || l.stats.Malformed.Load() != 0 {
		t.Errorf("%d sent", n)
	}
}
