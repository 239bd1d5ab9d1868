package conform

import (
	"bytes"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// Filter says which frames cross a wire in place of one that is sent, or of one that has come. It
// is called without a frame, as if one were sent, each time that nothing has come. The frame is
// its to keep and to change.
type Filter = func(sent bool, frame []byte) [][]byte

// OpenFiltered opens two NICs that can reach each other, as Open does; what crosses the wire at
// b's end goes through f. It skips the check if it cannot have b's wire filtered.
type OpenFiltered func(t T, f Filter) (a, b *via.NIC)

// Faults returns the checks that need faults on the wire, or a peer that does what it must not.
// What they check is the first NIC: the second one is the peer.
func Faults(open OpenFiltered) Suite {
	s := suite(always, faults)
	for i := range s {
		s[i].filtered = open
	}
	return s
}

var faults = []section{{"faults", []entry{
	{"a message waits for the write before it", testMessageAfterWrite},
	{"a write does not overtake another", testWriteOvertakes},
	{"a message waits for all of its frames", testMessageWhole},
	{"frames in the same place", testOverlap},
	{"acknowledged again", testAcknowledgedAgain},
	{"acknowledged before the disconnect", testAcknowledgedFirst},
	{"unreliable messages twice", testTwiceUnreliable},
	{"too many reads", testTooManyReads},
	{"a read that is too long", testReadTooLong},
}}}

// wantNotDone fails the test if a receive is complete.
func wantNotDone(t T, e *End, why string) {
	t.Helper()
	if _, err := e.VI.RecvDone(); err != via.ErrNotDone {
		t.Fatalf("a receive has ended (%v): %s", err, why)
	}
}

// fromPeer makes two connected ends: x at the NIC that is checked, and y at the peer, which may
// write and read m.
func fromPeer(w *World, a via.VIAttributes, size int) (x, y *End, m *via.Memory) {
	w.Helper()
	y, x, m = connectRDMA(NewWorld(w, w.B, w.A), a, size, 1)
	return x, y, m
}

// loseWrite makes the wire lose the write to an address. What it returns reports whether the
// message that is sent then has been acknowledged.
func loseWrite(wire *faultyWire, address uint64) (arrived func() bool) {
	var message uint32
	acknowledged := false
	wire.set(func(sent bool, f frame) [][]byte {
		switch last, _ := f.ends(); {
		case sent && f.Type == datasheet.FrameWrite && f.extension().Address == address:
			return nil
		case sent && f.Type == datasheet.FrameData && last:
			message = f.PSN
		case !sent:
			acknowledged = acknowledged || message != 0 && f.acknowledges(message)
		}
		return [][]byte{f.bytes}
	})
	return func() bool { return acknowledged }
}

// testMessageAfterWrite loses a write, and has the message behind it arrive.
func testMessageAfterWrite(w *World) {
	const size = 1000
	x, y, m := fromPeer(w, via.VIAttributes{}, size)
	OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 0, size)))
	arrived := loseWrite(w.wire, m.Address())
	pattern(y.Memory.Bytes()[:size], 1)
	OK(w, y.VI.PostSend(y.writeTo(w, y.Send[0], 0, size, m, 0)))
	OK(w, y.VI.PostSend(y.Prepare(w, y.Send[1], 0, size)))
	w.untilRule(y, "the message to be acknowledged", arrived)
	wantNotDone(w, x, "what was written before its message is not there")
	w.wire.set(nil)
	w.MustTake(x.VI.RecvDone)
	if !bytes.Equal(m.Bytes(), y.Memory.Bytes()[:size]) {
		w.Error("a receive was complete before what was written earlier was there")
	}
	w.MustTake(y.VI.SendDone)
	w.MustTake(y.VI.SendDone)
}

// testWriteOvertakes loses the first of two writes, and has the second arrive, which lies over the
// first but for a byte. A message behind it shows that it has.
func testWriteOvertakes(w *World) {
	const size = 1000
	x, y, m := fromPeer(w, via.VIAttributes{}, 1+size)
	OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 0, size)))
	arrived := loseWrite(w.wire, m.Address())
	pattern(y.Memory.Bytes()[:2*size], 2)
	OK(w, y.VI.PostSend(y.writeTo(w, y.Send[0], 0, size, m, 0)))
	OK(w, y.VI.PostSend(y.writeTo(w, y.Send[1], size, size, m, 1)))
	OK(w, y.VI.PostSend(y.Prepare(w, y.Send[2], 0, size)))
	w.untilRule(y, "the message to be acknowledged", arrived)
	wantNotDone(w, x, "what was written before its message is not there")
	if !bytes.Equal(m.Bytes(), make([]byte, 1+size)) {
		w.Error("a write has landed before an earlier one")
	}
	w.wire.set(nil)
	w.MustTake(x.VI.RecvDone)
	if b := m.Bytes(); b[0] != y.Memory.Bytes()[0] || !bytes.Equal(b[1:], y.Memory.Bytes()[size:2*size]) {
		w.Error("what is there is not what the later of two writes has written")
	}
	for range 3 {
		w.MustTake(y.VI.SendDone)
	}
}

// manyFrames is the length of a message of some frames.
func manyFrames(w *World) int {
	a, b := w.A.Query(), w.B.Query()
	n := 3 * int(b.MTU)
	if n > int(min(a.MaxTransfer, b.MaxTransfer)) {
		w.Skip("a message of some frames is longer than a transfer may be")
	}
	return n
}

// testMessageWhole loses the last frame but one of a message, and has the last one arrive.
func testMessageWhole(w *World) {
	size := manyFrames(w)
	x, y := w.Connect(Setup{Attributes: via.VIAttributes{MaxTransfer: uint32(size)}, Memory: size})
	OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 0, size)))
	var end uint32
	arrived := false
	w.wire.set(func(sent bool, f frame) [][]byte {
		if !sent {
			arrived = arrived || end != 0 && f.acknowledges(end)
		} else if last, lose := f.ends(); f.Type == datasheet.FrameData && lose {
			return nil
		} else if f.Type == datasheet.FrameData && last {
			end = f.PSN
		}
		return [][]byte{f.bytes}
	})
	pattern(y.Memory.Bytes(), 3)
	OK(w, y.VI.PostSend(y.Prepare(w, y.Send[0], 0, size)))
	w.untilRule(y, "the last frame to be acknowledged", func() bool { return arrived })
	wantNotDone(w, x, "a frame of its message is missing")
	w.wire.set(nil)
	wantMessage(w, x, y, size)
}

// wantMessage takes a message that y has sent from the beginning of its memory.
func wantMessage(w *World, x, y *End, size int) {
	w.Helper()
	d := w.MustTake(x.VI.RecvDone)
	if int(d.Length()) != size || !bytes.Equal(x.Memory.Bytes()[:size], y.Memory.Bytes()[:size]) {
		w.Errorf("%d bytes have come that are not the %d that were sent", d.Length(), size)
	}
	w.MustTake(y.VI.SendDone)
}

// testOverlap puts a frame of a message where the one before it was, once. The one before has
// arrived: else the wrong frame is the first that says what lies there.
func testOverlap(w *World) {
	size := manyFrames(w)
	x, y := w.Connect(Setup{Attributes: via.VIAttributes{MaxTransfer: uint32(size)}, Memory: size})
	OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 0, size)))
	var before uint32
	arrived, forged := false, false
	w.wire.set(func(sent bool, f frame) [][]byte {
		if !sent {
			arrived = arrived || before != 0 && f.acknowledges(before)
		} else if _, move := f.ends(); f.Type == datasheet.FrameData && move && !forged {
			if before = f.PSN - 1; !arrived {
				return nil
			}
			forged = true
			return [][]byte{f.forged(len(f.bytes), func(h *datasheet.Header) { h.Offset -= uint32(h.Length) })}
		}
		return [][]byte{f.bytes}
	})
	pattern(y.Memory.Bytes(), 4)
	OK(w, y.VI.PostSend(y.Prepare(w, y.Send[0], 0, size)))
	wantMessage(w, x, y, size)
	w.untilRule(y, "the frame", func() bool { return forged })
}

// testAcknowledgedAgain loses what acknowledges a message until the message was sent again. The
// peer does not ask.
func testAcknowledgedAgain(w *World) {
	const size = 10
	x, y := w.Connect(Setup{})
	for _, d := range x.Recv[:2] {
		OK(w, x.VI.PostRecv(x.Prepare(w, d, 0, size)))
	}
	times := 0
	w.wire.set(func(sent bool, f frame) [][]byte {
		if sent && f.Type == datasheet.FrameData {
			times++
		}
		if times > 0 && (f.Type == datasheet.FrameProbe || !sent && f.Type == datasheet.FrameAck && times == 1) {
			return nil
		}
		return [][]byte{f.bytes}
	})
	pattern(y.Memory.Bytes()[:size], 5)
	OK(w, y.VI.PostSend(y.Prepare(w, y.Send[0], 0, size)))
	wantMessage(w, x, y, size)
	wantNotDone(w, x, "a message that was sent once has come twice")
	w.wire.set(nil)
	exchange(w, x, y, size, 1)
}

// testAcknowledgedFirst: a VI that disconnects after it has received a message acknowledges the
// message first. Wires may lose that, but not most of it.
func testAcknowledgedFirst(w *World) {
	const size, rounds, most = 10, 10, 7
	x, y := NewEnd(w, w.A, Setup{}), NewEnd(w, w.B, Setup{})
	unacknowledged := 0
	for range rounds {
		var message uint32
		acknowledged, over := false, false
		w.wire.set(func(sent bool, f frame) [][]byte {
			switch {
			case sent && f.Type == datasheet.FrameData:
				message = f.PSN
			case !sent && f.Type == datasheet.FrameDisconnect && f.Message == 1 && !over:
				if over = true; !acknowledged {
					unacknowledged++
				}
			case !sent:
				acknowledged = acknowledged || message != 0 && f.acknowledges(message)
			}
			return [][]byte{f.bytes}
		})
		ctx := Context(w)
		OK(w, ConnectVIs(ctx, x.VI, y.VI, w.Name()))
		OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 0, size)))
		OK(w, y.VI.PostSend(y.Prepare(w, y.Send[0], 0, size)))
		w.MustTake(x.VI.RecvDone)
		OK(w, x.VI.Disconnect(ctx))
		w.MustTake(y.VI.SendDone)
		w.untilRule(y, "the disconnect", func() bool { return over })
		wantBroken(w, y, y, via.ReliableDelivery)
		OK(w, y.VI.Disconnect(ctx))
	}
	if unacknowledged > most {
		w.Errorf("%d of %d messages were not acknowledged before the disconnect", unacknowledged, rounds)
	}
}

// testTwiceUnreliable sends each unreliable message twice, with short and long ones in turn.
func testTwiceUnreliable(w *World) {
	const messages = 20
	size := manyFrames(w)
	a := via.VIAttributes{Reliability: via.Unreliable, MaxTransfer: uint32(size)}
	x, y := w.Connect(Setup{Attributes: a, Memory: size})
	var frames [][]byte
	w.wire.set(func(sent bool, f frame) [][]byte {
		if !sent || f.Type != datasheet.FrameData {
			return [][]byte{f.bytes}
		}
		if f.Offset == 0 {
			frames = nil
		}
		frames = append(frames, f.bytes)
		if last, _ := f.ends(); !last {
			return [][]byte{f.bytes}
		}
		return append([][]byte{f.bytes}, frames...)
	})
	for _, d := range x.Recv[:4] {
		OK(w, x.VI.PostRecv(x.Prepare(w, d, 0, size)))
	}
	sent, last := uint32(0), uint32(0)
	w.Until("messages", func() bool {
		d, err := x.VI.RecvDone()
		if err == via.ErrNotDone {
			length := 10
			if sent++; sent%2 == 0 {
				length = size
			}
			y.Prepare(w, y.Send[0], 0, length).SetImmediate(sent)
			OK(w, y.VI.PostSend(y.Send[0]))
			w.MustTake(y.VI.SendDone)
			return false
		}
		OK(w, err)
		if n, ok := d.Immediate(); !ok || n <= last {
			w.Fatalf("message %d came after message %d", n, last)
		} else {
			last = n
		}
		OK(w, x.VI.PostRecv(x.Prepare(w, d, 0, size)))
		return last >= messages
	})
}

// testTooManyReads has a peer ask for more reads at a time than it may, and take nothing of what
// comes.
func testTooManyReads(w *World) {
	const size, asked, bursts = 100, datasheet.MaxReads + 8, 3
	x, y, m := fromPeer(w, via.VIAttributes{}, size)
	bystanderX, bystanderY := w.Connect(Setup{})
	var request frame
	looks, sure := 0, 0
	taken := func() uint32 { return request.PSN + datasheet.MaxReads }
	rule := func(sent bool, f frame) [][]byte {
		switch {
		case sent && f.Type == datasheet.FrameReadRequest:
			request = f
		case request.Header == nil || f.DestinationEndpoint != request.SourceEndpoint && f.SourceEndpoint != request.SourceEndpoint:
			return [][]byte{f.bytes}
		// A wire with faults may bring a late frame of an earlier connection, which acknowledges
		// something else.
		case !sent && f.Ack-taken()-1 < asked && f.Type != datasheet.FrameDisconnect:
			w.wire.wrong = "more reads were taken than a VI may have under way"
		case !sent && f.Type == datasheet.FrameAck && f.Ack == taken():
			sure++
		}
		return nil
	}
	w.wire.set(rule)
	w.wire.mu.Lock()
	w.wire.idle = func() (out [][]byte) {
		if looks++; request.Header == nil || looks%8 != 1 {
			return nil
		}
		for i := range uint32(asked) {
			out = append(out, request.forged(len(request.bytes), func(h *datasheet.Header) { h.PSN += i }))
		}
		return append(out, request.probe())
	}
	w.wire.mu.Unlock()
	OK(w, y.VI.PostSend(y.readFrom(w, y.Send[0], 0, size, m, 0)))
	w.untilRule(y, "as many reads to be taken as may be", func() bool { return sure > bursts })
	wantState(w, x.VI, via.Connected)
	w.wire.set(nil)
	exchange(w, bystanderX, bystanderY, 1000, 1)
}

// testReadTooLong has a peer ask for more than a transfer may have.
func testReadTooLong(w *World) {
	const most, answers = 4096, 2
	x, y, m := fromPeer(w, via.VIAttributes{MaxTransfer: most}, 2*most)
	var request uint32
	refused := 0
	w.wire.set(func(sent bool, f frame) [][]byte {
		switch {
		case sent && f.Type == datasheet.FrameReadRequest && refused < answers:
			request = f.PSN
			return [][]byte{f.forged(len(f.bytes), func(h *datasheet.Header) { h.Extent++ }), f.probe()}
		case !sent && f.Type == datasheet.FrameReadResponse && f.Extent > most:
			w.wire.wrong = "a read was served that is longer than a transfer may be"
		case !sent && request != 0 && refused < answers && f.acknowledges(request):
			w.wire.wrong = "a read was taken that is longer than a transfer may be"
		case !sent && request != 0 && f.Type == datasheet.FrameAck:
			refused++
		}
		return [][]byte{f.bytes}
	})
	pattern(m.Bytes(), 6)
	OK(w, y.VI.PostSend(y.readFrom(w, y.Send[0], 0, most, m, 0)))
	w.untilRule(y, "the read to be refused", func() bool { return refused >= answers })
	wantOperation(w, w.MustTake(y.VI.SendDone), most, operationRead)
	if !bytes.Equal(y.Memory.Bytes()[:most], m.Bytes()[:most]) {
		w.Error("a read brought something else")
	}
	wantState(w, x.VI, via.Connected)
}
