package engine_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestChannelBadDoorbells: words that make no sense are not taken and say so; doorbells of
// pages that have none are counted. Nothing else happens.
func TestChannelBadDoorbells(t *testing.T) {
	w := newChannelWorld(t)
	a, b := w.pair(nil)
	b.allow(0, 1000)
	w.settle()
	before := a.transmit()
	for name, word := range map[string]uint32{
		"start beyond": datasheet.ChannelBell(1024, 1), "stop beyond": datasheet.ChannelBell(0, 1024), "equal": datasheet.ChannelBell(9, 9),
		"reserved": datasheet.ChannelBell(0, 1) | 1<<24, "keep": datasheet.ChannelBell(0, 1) | datasheet.ChannelKeep,
	} {
		old := a.status()
		a.ring(datasheet.PriorityLow, word)
		w.settle()
		if got := a.status(); got.Result[1] != datasheet.ChannelBadOffsets || got.Stores[1] != old.Stores[1]+1 || got.Ended[1] != old.Ended[1]+1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := a.transmit(); got != before || b.received().Current != 0 {
		t.Errorf("%+v, %+v", got, b.received())
	}
	bad := func(n *node) uint64 { return n.e.Counter(datasheet.CounterBadDoorbells) }
	plain := w.a.newVI(w.handles[0], nil)
	for name, ring := range map[string]func(){
		"a channel's, of a VI": func() {
			w.a.e.Doorbell(datasheet.EndpointPage(plain.id)+datasheet.DoorbellHigh, datasheet.ChannelBell(0, 1))
		},
		"a VI's, of a channel": func() {
			w.a.e.Doorbell(datasheet.EndpointPage(a.id)+datasheet.DoorbellSend, 1)
		},
		"of nobody": func() {
			w.a.e.Doorbell(datasheet.EndpointPage(4000)+datasheet.DoorbellHigh, datasheet.ChannelBell(0, 1))
		},
		"of endpoint 0": func() { w.a.e.Doorbell(datasheet.DoorbellHigh, datasheet.ChannelBell(0, 1)) },
		"between": func() {
			w.a.e.Doorbell(datasheet.EndpointPage(a.id)+datasheet.DoorbellHigh+2, datasheet.ChannelBell(0, 1))
		},
		"behind":             func() { w.a.e.Doorbell(datasheet.EndpointPage(a.id)+datasheet.DoorbellReceive+4, 1) },
		"no bell":            func() { w.a.e.Doorbell(datasheet.EndpointPage(a.id)+datasheet.DoorbellHigh, 0x001001) },
		"receive from afar":  func() { a.allow(1024, 0) },
		"receive up to afar": func() { a.allow(0, 4095) },
	} {
		old, word := bad(w.a), a.received()
		ring()
		w.settle()
		if bad(w.a) != old+1 || a.received() != word {
			t.Errorf("%s: %d counted, %+v", name, bad(w.a)-old, a.received())
		}
	}
}

// TestChannelFull: stores beyond the depth are not taken, and the others are sent.
func TestChannelFull(t *testing.T) {
	w := newChannelWorld(t)
	a, b := w.pair(nil)
	b.allow(0, 1023)
	w.settle()
	w.a.port.room = -1 // the wire takes nothing
	for range datasheet.ChannelDepth {
		a.post(datasheet.PriorityHigh, 0, 100)
		w.a.e.Step() // takes the word
	}
	for range 2 {
		a.post(datasheet.PriorityHigh, 0, 1)
	}
	w.a.e.Step()
	if got := a.status(); got.Stores[0] != datasheet.ChannelDepth+2 || got.Ended[0] != 2 || got.Result[0] != datasheet.ChannelFull {
		t.Errorf("%+v", got)
	}
	w.a.port.room = 0
	w.settle()
	if got := a.status(); got.Ended[0] != got.Stores[0] || b.received().PDUs != datasheet.ChannelDepth {
		t.Errorf("%+v, %+v", got, b.received())
	}
	// Stores to a word that has not been taken yet count too.
	for range 3 * datasheet.ChannelDepth {
		a.post(datasheet.PriorityLow, 0, 1)
	}
	w.settle()
	if got := a.status(); got.Stores[1] != 3*datasheet.ChannelDepth || got.Ended[1] != got.Stores[1] {
		t.Errorf("%+v", got)
	}
}

// TestChannelPageWritten: what the host writes to the control page has no effect.
func TestChannelPageWritten(t *testing.T) {
	w := newChannelWorld(t)
	a, b := w.pair(nil)
	b.allow(0, 1000)
	w.settle()
	for _, c := range []*channelEnd{a, b} {
		datasheet.StoreWord(&c.control.Transmit, ^uint64(0))
		datasheet.StoreWord(&c.control.Receive, ^uint64(0))
		datasheet.StoreWord(&c.control.SendStatus, ^uint64(0))
		c.control.SendCRC, c.control.RecvCRC = 1, 2
	}
	want := pattern(4000, 1)
	a.post(datasheet.PriorityLow, 0, a.put(0, want))
	w.settle()
	if b.received().PDUs != 1 || !b.end(0).Whole() || a.status().Ended != [2]uint8{0, 1} {
		t.Fatalf("%+v, %+v", b.received(), a.status())
	}
	mustEqual(t, b.at(0, len(want)), want)
}

// TestChannelMemoryGone: without its double page a message ends with an aborted PDU, and what
// comes is dropped and counted. What was somebody else's memory meanwhile is not touched.
func TestChannelMemoryGone(t *testing.T) {
	w := newChannelWorld(t)
	a, b := w.pair(nil)
	b.allow(0, 1000)
	message := pattern(6000, 1)
	a.post(datasheet.PriorityLow, 0, a.put(0, message))
	w.a.e.Step()
	do(w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: a.handle})
	w.settle()
	if got := a.status(); got.Result[1] != datasheet.ChannelUnreadable || got.Ended[1] != 1 || a.transmit().Current != a.transmit().Stop {
		t.Errorf("%+v, %+v", got, a.transmit())
	}
	if got := b.received(); got.PDUs != 1 || got.Status&datasheet.ChannelAborted == 0 || b.end(0)&datasheet.ChannelEndAborted == 0 {
		t.Errorf("%+v, %08x", got, b.end(0))
	}
	c, d := w.b.newChannel(w.handles[1], w.sram[1], nil), w.a.newChannel(w.a.memory(0, 0), w.sram[0], nil)
	c.join(d)
	d.allow(0, 1000)
	w.settle()
	do(w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: d.handle})
	before := bytes.Clone(w.a.mem)
	c.post(datasheet.PriorityHigh, 0, c.put(0, message[:100]))
	w.settle()
	if got := d.received(); got.PDUs != 1 || got.Drops != 3 || got.Status&datasheet.ChannelUnreachable == 0 || d.end(0).Whole() {
		t.Errorf("%+v, %08x", got, d.end(0))
	}
	mustEqual(t, w.a.mem, before)
	if got := w.a.e.Counter(datasheet.CounterCellsDropped); got != 3 {
		t.Errorf("%d cells dropped", got)
	}
}

// TestChannelBadCells: cells that are damaged, or somebody else's, are dropped and counted,
// whatever they do to their PDU; what comes behind arrives.
func TestChannelBadCells(t *testing.T) {
	for name, c := range map[string]struct {
		spoil   func(c *datasheet.Cell)
		dropped uint64
		end     datasheet.ChannelEnd // of the PDU
	}{
		"HEC":         {func(c *datasheet.Cell) { c.HEC ^= 1 }, 1, datasheet.ChannelEndBadCRC},
		"header":      {func(c *datasheet.Cell) { c.Header[2] ^= 0x10 }, 1, datasheet.ChannelEndBadCRC},
		"tag":         {func(c *datasheet.Cell) { c.Tag[1]++ }, 1, datasheet.ChannelEndBadCRC},
		"no channel":  {func(c *datasheet.Cell) { rehead(c, cells.Header{VCI: 4001}) }, 1, datasheet.ChannelEndBadCRC},
		"channel 0":   {func(c *datasheet.Cell) { rehead(c, cells.Header{}) }, 1, datasheet.ChannelEndBadCRC},
		"path":        {func(c *datasheet.Cell) { rehead(c, cells.Header{VPI: 1, VCI: vciOf(c)}) }, 1, datasheet.ChannelEndBadCRC},
		"the network": {func(c *datasheet.Cell) { rehead(c, cells.Header{VCI: vciOf(c), PTI: 4}) }, 1, datasheet.ChannelEndBadCRC},
		"payload":     {func(c *datasheet.Cell) { c.Payload[7] ^= 4 }, 0, datasheet.ChannelEndBadCRC},
	} {
		t.Run(name, func(t *testing.T) {
			w := newChannelWorld(t)
			a, b := w.pair(nil)
			b.allow(0, 1000)
			spoilt := false
			w.a.port.spoil = func(frame []byte) [][]byte {
				if h := datasheet.HeaderAt(frame); h.Type == datasheet.FrameCells && !spoilt {
					spoilt = true
					c.spoil(&datasheet.CellsAt(frame[datasheet.HeaderSize:])[1])
				}
				return [][]byte{frame}
			}
			message := pattern(200, 1)
			for range 2 {
				a.post(datasheet.PriorityLow, 0, a.put(0, message))
			}
			w.settle()
			if got := b.received(); got.PDUs != 2 || b.end(0)&^(datasheet.ChannelEndLength|datasheet.ChannelEndOffset) != c.end || !b.end(1).Whole() {
				t.Errorf("%+v, %08x, %08x", got, b.end(0), b.end(1))
			}
			if got := w.b.e.Counter(datasheet.CounterCellsDropped); got != c.dropped {
				t.Errorf("%d cells dropped", got)
			}
			mustEqual(t, b.at(b.end(0).Offset(), len(message)), message)
		})
	}
}

func vciOf(c *datasheet.Cell) uint16 {
	return uint16(c.Header[1]&15)<<12 | uint16(c.Header[2])<<4 | uint16(c.Header[3])>>4
}

// rehead gives a cell a sound header.
func rehead(c *datasheet.Cell, h cells.Header) {
	var b [cells.HeaderSize]byte
	h.Put(&b)
	copy(c.Header[:], b[:])
	c.HEC = b[4]
}

// TestChannelWithoutEnd: a PDU that never ends, longer than its double page, is written up to
// the stop offset and no further, and the next one along has its damage.
func TestChannelWithoutEnd(t *testing.T) {
	w := newChannelWorld(t)
	a, b := w.pair(nil)
	b.allow(0, 1000)
	endless := true
	w.a.port.spoil = func(frame []byte) [][]byte {
		if datasheet.HeaderAt(frame).Type == datasheet.FrameCells && endless {
			for i := range datasheet.CellsAt(frame[datasheet.HeaderSize:]) {
				c := &datasheet.CellsAt(frame[datasheet.HeaderSize:])[i]
				rehead(c, cells.Header{VCI: vciOf(c)})
			}
		}
		return [][]byte{frame}
	}
	for range 20 { // 160 KiB, more than a PDU may have too
		a.post(datasheet.PriorityLow, 0, 1023)
		w.settle()
	}
	if got := b.received(); got.PDUs != 0 || got.Current != 1000 || got.Status&datasheet.ChannelCut == 0 {
		t.Errorf("%+v", got)
	}
	endless = false
	a.post(datasheet.PriorityLow, 0, 1)
	b.allow(0, 100)
	a.post(datasheet.PriorityLow, 0, 1)
	w.settle()
	if got := b.received(); got.PDUs != 2 || b.end(0).Whole() || !b.end(1).Whole() {
		t.Errorf("%+v, %08x, %08x", got, b.end(0), b.end(1))
	}
}

// TestChannelStorm creates, connects, uses and destroys channels at random, with cells under
// way: nothing is left of device memory, and no channel sees another's cells.
func TestChannelStorm(t *testing.T) {
	w := newChannelWorld(t)
	free := [2]uint32{w.a.e.FreeSRAM(), w.b.e.FreeSRAM()}
	r := rand.New(rand.NewPCG(1, 1))
	var live [][2]*channelEnd
	drop := func(i int) {
		p := live[i]
		for _, c := range p[r.IntN(2):] { // one side may hear of it from the other only
			do(c.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: c.id})
		}
		for _, c := range p {
			do(c.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: c.id})
			do(c.n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: c.id})
		}
		live = append(live[:i], live[i+1:]...)
	}
	for range 300 {
		switch n := r.IntN(10); {
		case n < 2 && len(live) < 6:
			w.a.brk, w.b.brk = 0, 0 // memory may be anybody's: only counts are looked at
			for range len(live) {
				w.a.brk, w.b.brk = w.a.brk+1<<14, w.b.brk+1<<14
			}
			a, b := w.pair(nil)
			b.allow(0, 1023)
			live = append(live, [2]*channelEnd{a, b})
		case n < 3 && len(live) > 0:
			drop(r.IntN(len(live)))
		case len(live) > 0:
			p := live[r.IntN(len(live))]
			p[0].post(datasheet.ChannelPriority(r.IntN(2)), uint32(r.IntN(1024)), uint32(r.IntN(1024)))
			if r.IntN(3) == 0 {
				w.a.e.Step()
				w.b.e.Step()
			}
		}
	}
	for len(live) > 0 {
		drop(0)
	}
	w.settle()
	if got := [2]uint32{w.a.e.FreeSRAM(), w.b.e.FreeSRAM()}; got != free {
		t.Errorf("%v bytes of device memory are free, %v before", got, free)
	}
	if a, b := w.a.e.Quiet(), w.b.e.Quiet(); !a || !b {
		t.Error("something is still under way")
	}
}

// TestChannelCommands: creation names what is wrong; memory and numbers run out.
func TestChannelCommands(t *testing.T) {
	w := newChannelWorld(t)
	a := w.a.newChannel(w.handles[0], w.sram[0], nil)
	_, at, _ := w.a.alloc(32 << 10)
	at = (at + 1<<14 - 1) &^ (1<<14 - 1)
	good := datasheet.CreateEndpointBody{Kind: datasheet.KindChannel, Reliability: datasheet.Unreliable, SendIOVA: at, RecvIOVA: at,
		SendCQ: a.handle, RecvCQ: a.handle, SendLog2: 12, RecvLog2: 12, MaxTransfer: 8192, SendVector: datasheet.NoVector, RecvVector: datasheet.NoVector}
	for name, c := range map[string]struct {
		spoil func(*datasheet.CreateEndpointBody)
		want  datasheet.Result
	}{
		"page of 2 KiB":     {pages(11), datasheet.ResultInvalidParameter},
		"page of 32 KiB":    {pages(15), datasheet.ResultInvalidParameter},
		"two sizes":         {func(b *datasheet.CreateEndpointBody) { b.RecvLog2 = 13 }, datasheet.ResultInvalidParameter},
		"transfer":          {func(b *datasheet.CreateEndpointBody) { b.MaxTransfer = 4096 }, datasheet.ResultInvalidMTU},
		"reliable":          {func(b *datasheet.CreateEndpointBody) { b.Reliability = datasheet.ReliableDelivery }, datasheet.ResultInvalidReliability},
		"rights":            {func(b *datasheet.CreateEndpointBody) { b.Rights = datasheet.AccessRDMARead }, datasheet.ResultInvalidParameter},
		"options":           {func(b *datasheet.CreateEndpointBody) { b.Options = datasheet.EndpointBreaks }, datasheet.ResultInvalidParameter},
		"vector":            {func(b *datasheet.CreateEndpointBody) { b.RecvVector = 1 }, datasheet.ResultInvalidParameter},
		"tag":               {func(b *datasheet.CreateEndpointBody) { b.Ptag = 77 }, datasheet.ResultInvalidPtag},
		"alignment":         {func(b *datasheet.CreateEndpointBody) { b.SendIOVA += 64 }, datasheet.ResultInvalidParameter},
		"handle":            {func(b *datasheet.CreateEndpointBody) { b.RecvCQ++ }, datasheet.ResultInvalidParameter},
		"beyond the region": {func(b *datasheet.CreateEndpointBody) { b.RecvIOVA = hostBase + uint64(len(w.a.mem)) - 4096 }, datasheet.ResultInvalidParameter},
	} {
		body := good
		c.spoil(&body)
		refused(t, w.a, name, datasheet.OpCreateEndpoint, body, c.want)
	}
	refused(t, w.a, "MODIFY_ENDPOINT", datasheet.OpModifyEndpoint, datasheet.ModifyEndpointBody{Endpoint: a.id, MaxTransfer: 8192,
		Reliability: datasheet.Unreliable}, datasheet.ResultInvalidState)
	for w.a.e.FreeSRAM() > 0 {
		do(w.a, datasheet.OpCreateEndpoint, good)
	}
	refused(t, w.a, "no device memory", datasheet.OpCreateEndpoint, good, datasheet.ResultResource)
	// A channel and a VI, or channels with other pages, do not go together.
	b := w.b.newChannel(w.handles[1], w.sram[1], pages(13))
	plain := w.b.newVI(w.handles[1], func(b *datasheet.CreateEndpointBody) { b.Reliability, b.MaxTransfer = datasheet.Unreliable, 8192 })
	for id, want := range map[uint32]datasheet.Result{b.id: datasheet.ResultInvalidMTU, plain.id: datasheet.ResultInvalidParameter} {
		wait := waitFor(w.b, "test", 1000)
		request := start(w.a, datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: a.id, TimeoutMS: 1000, RemoteMAC: w.b.e.MAC(), Remote: disc("test")})
		c := offered(w.b, wait)
		if c.Kind != datasheet.KindChannel {
			t.Errorf("a client of kind %v", c.Kind)
		}
		refused(t, w.b, "accept", datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: c.Connection, Endpoint: id, TimeoutMS: 1000}, want)
		do(w.b, datasheet.OpConnectReject, datasheet.ConnectRejectBody{Connection: c.Connection})
		w.a.wait(request)
	}
}
