package engine_test

import (
	"encoding/binary"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// newKernel creates channel 0 of the first NIC.
func (w *channelWorld) newKernel() *channelEnd {
	w.t.Helper()
	k := w.a.newChannel(w.handles[0], w.sram[0], func(b *datasheet.CreateEndpointBody) {
		b.Options, b.RecvCQ = datasheet.EndpointKernel, 0
	})
	if k.id != 0 {
		w.t.Fatalf("channel 0 has the number %d", k.id)
	}
	return k
}

// address makes a message of channel 0 on the channel number, and returns the word behind.
func (c *channelEnd) address(start uint32, number uint64, message []byte) (stop uint32) {
	return c.put(c.put(start, binary.LittleEndian.AppendUint64(nil, number)), message)
}

// TestKernelChannelEnds: with messages under way the channel that they go on ends, and channel
// 0 itself does: each is told, nothing stays, and what comes behind is whole.
func TestKernelChannelEnds(t *testing.T) {
	w := newChannelWorld(t)
	free := w.a.e.FreeSRAM()
	a, b := w.pair(nil)
	c, d := w.pair(nil)
	for _, e := range []*channelEnd{b, d} {
		e.allow(0, 1000)
	}
	k := w.newKernel()
	w.settle()
	w.a.port.room = -1
	message := pattern(3000, 1)
	for i := range uint32(6) {
		k.post(datasheet.PriorityLow, 160*i, k.address(160*i, uint64([]*channelEnd{a, c}[i%2].id), message[:1200]))
	}
	c.post(datasheet.PriorityLow, 0, c.put(0, message))
	w.a.e.Step() // one on a has begun
	do(w.a, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: a.id})
	if got := k.status(); got.Stores[1] != 6 || got.Ended[1] != 3 || got.Result[1] != datasheet.ChannelNotConnected {
		t.Errorf("%+v", got)
	}
	w.a.e.Step()  // one on c has begun
	for range 3 { // another may come and go at once
		do(w.a, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{})
		k = w.newKernel()
		for range datasheet.ChannelDepth {
			k.post(datasheet.PriorityLow, 0, k.address(0, uint64(c.id), message[:2000]))
		}
		w.a.e.Step()
	}
	do(w.a, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{})
	w.a.port.room = 0
	w.settle()
	// The one that had begun, if it had, ends as given up; c's own is whole.
	last := d.received().PDUs - 1
	if got := d.received(); got.PDUs < 1 || got.PDUs > 2 || !d.end(last).Whole() || d.end(last).Length() != len(message) {
		t.Fatalf("%+v, %08x %08x", got, d.end(0), d.end(1))
	}
	if last == 1 && d.end(0)&datasheet.ChannelEndAborted == 0 {
		t.Errorf("%08x", d.end(0))
	}
	if got := w.a.e.CellLevels(); got.Transmit != [2]int{} || got.Channels != 2 {
		t.Errorf("%+v", got)
	}
	bad := w.a.e.Counter(datasheet.CounterBadDoorbells)
	k.post(datasheet.PriorityLow, 0, 4)
	w.settle()
	if w.a.e.Counter(datasheet.CounterBadDoorbells) != bad+1 {
		t.Error("the doorbell of a channel 0 that is no more was taken")
	}
	for _, e := range []*channelEnd{a, c} {
		do(w.a, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: e.id})
		do(w.a, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: e.id})
	}
	if got := w.a.e.FreeSRAM(); got != free {
		t.Errorf("%d bytes of device memory are free, %d before", got, free)
	}
}
