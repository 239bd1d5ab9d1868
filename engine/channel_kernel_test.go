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

// TestKernelChannel: messages of channel 0 go out on the channels that they name, also over the
// end of its double page, and beside messages of these.
func TestKernelChannel(t *testing.T) {
	w := newChannelWorld(t)
	a, b := w.pair(nil)
	c, d := w.pair(pages(13))
	k := w.newKernel()
	for _, e := range []*channelEnd{b, d} {
		e.allow(0, 1000)
	}
	own, first, second := pattern(2000, 1), pattern(1000, 2), pattern(3000, 3)
	a.post(datasheet.PriorityLow, 0, a.put(0, own))
	w.a.e.Step() // a has begun
	k.post(datasheet.PriorityHigh, 1000, k.address(1000, uint64(a.id), first))
	k.post(datasheet.PriorityLow, 200, k.address(200, uint64(c.id), second))
	w.settle()
	if b.received().PDUs != 2 || d.received().PDUs != 1 || !b.end(0).Whole() || !b.end(1).Whole() || !d.end(0).Whole() {
		t.Fatalf("%+v %+v, %08x %08x %08x", b.received(), d.received(), b.end(0), b.end(1), d.end(0))
	}
	mustEqual(t, b.at(0, len(own)), own)
	mustEqual(t, b.at(b.end(0).Offset(), len(first)), first)
	mustEqual(t, d.at(0, len(second)), second)
	if got := k.status(); got.Stores != [2]uint8{1, 1} || got.Ended != got.Stores || got.Result != [2]datasheet.ChannelResult{} {
		t.Errorf("%+v", got)
	}
	if got := a.status(); got.Stores != [2]uint8{0, 1} || got.Ended != got.Stores {
		t.Errorf("a: %+v", got)
	}
	if got := k.transmit(); got.Current != got.Stop || k.control.SendCRC != ^uint32(0) {
		t.Errorf("%+v, CRC %08x", got, k.control.SendCRC)
	}
	// A full line of its own does not keep a channel from sending, and the other way around.
	w.a.port.room = -1
	stop := k.address(0, uint64(a.id), pattern(5000, 4))
	for range datasheet.ChannelDepth + 1 {
		k.post(datasheet.PriorityLow, 0, stop)
		a.post(datasheet.PriorityLow, 0, 1)
		w.a.e.Step()
	}
	if x, y := k.status(), a.status(); x.Result[1] != datasheet.ChannelFull || y.Result[1] != datasheet.ChannelFull {
		t.Errorf("%+v, %+v", x, y)
	}
	w.a.port.room = 0
	w.settle()
	if got := b.received(); got.PDUs != 2+2*datasheet.ChannelDepth {
		t.Errorf("%+v", got)
	}
}

// TestKernelChannelHostile: what makes no sense goes nowhere and says so.
func TestKernelChannelHostile(t *testing.T) {
	w := newChannelWorld(t)
	a, b := w.pair(nil)
	b.allow(0, 1000)
	k := w.newKernel()
	idle := w.a.newChannel(w.handles[0], w.sram[0], nil)
	plain := w.a.newVI(w.handles[0], nil)
	w.settle()
	for name, c := range map[string]struct {
		number uint64
		words  uint32
		want   datasheet.ChannelResult
	}{
		"nobody":        {60, 4, datasheet.ChannelNotConnected},
		"itself":        {0, 4, datasheet.ChannelNotConnected},
		"beyond":        {1 << 20, 4, datasheet.ChannelNotConnected},
		"upper half":    {1<<32 | uint64(a.id), 4, datasheet.ChannelNotConnected},
		"all ones":      {^uint64(0), 4, datasheet.ChannelNotConnected},
		"a VI":          {uint64(plain.id), 4, datasheet.ChannelNotConnected},
		"not connected": {uint64(idle.id), 4, datasheet.ChannelNotConnected},
		"number alone":  {uint64(a.id), 1, datasheet.ChannelBadOffsets},
		"nothing":       {uint64(a.id), 0, datasheet.ChannelBadOffsets},
	} {
		old := k.status()
		k.address(1022, c.number, pattern(24, 1))
		k.post(datasheet.PriorityHigh, 1022, (1022+c.words)%1024)
		w.settle()
		if got := k.status(); got.Result[0] != c.want || got.Stores[0] != old.Stores[0]+1 || got.Ended[0] != got.Stores[0] {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := b.received(); got.PDUs != 0 || got.Drops != 0 {
		t.Errorf("%+v", got)
	}
	bad := w.a.e.Counter(datasheet.CounterBadDoorbells)
	k.allow(0, 5)
	w.a.e.Doorbell(datasheet.DoorbellSend, 1)
	w.settle()
	if got := w.a.e.Counter(datasheet.CounterBadDoorbells) - bad; got != 2 || k.received().Stop != 0 {
		t.Errorf("%d bad doorbells, %+v", got, k.received())
	}
	_, at, _ := w.a.alloc(32 << 10)
	at = (at + 1<<14 - 1) &^ (1<<14 - 1)
	good := datasheet.CreateEndpointBody{Kind: datasheet.KindChannel, Reliability: datasheet.Unreliable, SendIOVA: at,
		SendCQ: w.handles[0], SendLog2: 12, RecvLog2: 12, MaxTransfer: 8192, SendVector: datasheet.NoVector, RecvVector: datasheet.NoVector,
		Options: datasheet.EndpointKernel}
	refused(t, w.a, "a second one", datasheet.OpCreateEndpoint, good, datasheet.ResultResource)
	for name, spoil := range map[string]func(*datasheet.CreateEndpointBody){
		"spaced":        func(b *datasheet.CreateEndpointBody) { b.Options |= datasheet.EndpointSpaced },
		"to receive":    func(b *datasheet.CreateEndpointBody) { b.RecvIOVA = at },
		"with a handle": func(b *datasheet.CreateEndpointBody) { b.RecvCQ = w.handles[0] },
		"no memory":     func(b *datasheet.CreateEndpointBody) { b.SendCQ = 0 },
	} {
		body := good
		spoil(&body)
		refused(t, w.a, name, datasheet.OpCreateEndpoint, body, datasheet.ResultInvalidParameter)
	}
	refused(t, w.a, "to connect", datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: 0, TimeoutMS: 1000,
		RemoteMAC: w.b.e.MAC(), Remote: disc("test")}, datasheet.ResultInvalidState)
	// Without its memory it sends nothing, and the channel that it named goes on.
	do(w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: w.handles[0]})
	k.post(datasheet.PriorityHigh, 0, 4)
	w.settle()
	if got := k.status(); got.Result[0] != datasheet.ChannelUnreadable || got.Ended != got.Stores || b.received().PDUs != 0 {
		t.Errorf("%+v, %+v", got, b.received())
	}
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
