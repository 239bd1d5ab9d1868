package engine_test

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// channelEnd is one end of a pair of channels, as its host uses it.
type channelEnd struct {
	n          *node
	id         uint32
	page       datasheet.ChannelPage
	handle     uint32
	send, recv []byte // double pages
	control    *datasheet.ChannelControl
	ends       []uint32
	sram       []byte
	next       [datasheet.ChannelPriorities]uint64
}

// newChannel creates a channel over fresh double pages.
func (n *node) newChannel(handle uint32, sram []byte, change func(*datasheet.CreateEndpointBody)) *channelEnd {
	n.w.t.Helper()
	body := datasheet.CreateEndpointBody{Kind: datasheet.KindChannel, Reliability: datasheet.Unreliable,
		SendLog2: 12, RecvLog2: 12, MaxTransfer: 8192, SendCQ: handle, RecvCQ: handle,
		SendVector: datasheet.NoVector, RecvVector: datasheet.NoVector}
	if change != nil {
		change(&body)
	}
	c := &channelEnd{n: n, page: datasheet.ChannelPage(body.SendLog2), handle: handle, sram: sram}
	n.brk = (n.brk + 1<<14 - 1) &^ (1<<14 - 1)
	for _, d := range []struct {
		mem *[]byte
		at  *uint64
	}{{&c.send, &body.SendIOVA}, {&c.recv, &body.RecvIOVA}} {
		*d.mem, *d.at, _ = n.alloc(int(c.page.Bytes()))
	}
	if body.Options == datasheet.EndpointKernel {
		body.RecvIOVA = 0 // it receives nothing
	}
	r := datasheet.Reply[datasheet.EndpointCreated](do(n, datasheet.OpCreateEndpoint, body))
	c.id = r.Endpoint
	if r.Send%datasheet.PageSize != 0 || int(r.Send)+datasheet.PageSize > len(sram) {
		n.w.t.Fatalf("the control page is at %#x", r.Send)
	}
	c.control = datasheet.ChannelControlAt(sram[r.Send:])
	c.ends = datasheet.ChannelEndsAt(sram[r.Send:])
	return c
}

func (c *channelEnd) ring(p datasheet.ChannelPriority, word uint32) {
	at := uint64(datasheet.DoorbellHigh)
	if p == datasheet.PriorityLow {
		at = datasheet.DoorbellLow
	}
	c.n.e.Doorbell(datasheet.EndpointPage(c.id)+at+4*(c.next[p]%datasheet.ChannelDepth), word)
	c.next[p]++
}

// post sends the words from start up to stop.
func (c *channelEnd) post(p datasheet.ChannelPriority, start, stop uint32) {
	c.ring(p, datasheet.ChannelBell(start, stop))
}

// allow lets what comes go from start up to stop.
func (c *channelEnd) allow(start, stop uint32) {
	c.n.e.Doorbell(datasheet.EndpointPage(c.id)+datasheet.DoorbellReceive, datasheet.ChannelBell(start, stop))
}

func (c *channelEnd) received() datasheet.ReceiveWord {
	return datasheet.DecodeReceiveWord(datasheet.LoadWord(&c.control.Receive), c.page)
}

func (c *channelEnd) transmit() datasheet.TransmitWord {
	return datasheet.DecodeTransmitWord(datasheet.LoadWord(&c.control.Transmit), c.page)
}

func (c *channelEnd) status() datasheet.SendStatus {
	return datasheet.DecodeSendStatus(datasheet.LoadWord(&c.control.SendStatus))
}

// end says how PDU n ended.
func (c *channelEnd) end(n uint8) datasheet.ChannelEnd {
	return datasheet.ChannelEnd(atomic.LoadUint32(&c.ends[n]))
}

// at copies n bytes of the receiving double page, from a word on.
func (c *channelEnd) at(word uint32, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = c.recv[(int(word)*8+i)%len(c.recv)]
	}
	return b
}

// put writes data into the sending double page, from a word on, and returns the word behind.
func (c *channelEnd) put(word uint32, data []byte) uint32 {
	for i, v := range data {
		c.send[(int(word)*8+i)%len(c.send)] = v
	}
	return (word + uint32(len(data)+7)/8) % c.page.Words()
}

// stampAt is the CRC and the clock that stand at a word.
func (c *channelEnd) stampAt(word uint32) (crc uint32, clock uint64) {
	b := c.at(word, 16)
	return binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint64(b[8:])
}

// join connects two channels.
func (c *channelEnd) join(server *channelEnd) {
	c.n.w.t.Helper()
	connect(&vi{n: c.n, id: c.id}, &vi{n: server.n, id: server.id})
}

// channelWorld is a world with device memory and all of its memory registered.
type channelWorld struct {
	*world
	sram    [2][]byte
	handles [2]uint32
}

func newChannelWorld(t testing.TB, options ...option) *channelWorld {
	t.Helper()
	w := &channelWorld{world: newWorld(t, options...)}
	for i, n := range []*node{w.a, w.b} {
		w.sram[i], w.handles[i] = n.mapSRAM(64*datasheet.PageSize, 0), n.memory(0, 0)
	}
	return w
}

// pair makes a pair of connected channels.
func (w *channelWorld) pair(change func(*datasheet.CreateEndpointBody)) (a, b *channelEnd) {
	w.t.Helper()
	a, b = w.a.newChannel(w.handles[0], w.sram[0], change), w.b.newChannel(w.handles[1], w.sram[1], change)
	a.join(b)
	return a, b
}

// cellsOf is an option that changes how cells cross the NICs.
func cellsOf(change func(*engine.Cells)) option {
	return func(c *engine.Config, _ *port) { change(&c.Cells) }
}
