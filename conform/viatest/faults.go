package viatest

import (
	"bytes"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/via"
)

// FaultSection is the section of FaultChecks.
const FaultSection = "faults"

// Filter says which frames cross a wire in place of one that is sent, or of one that has come. It
// is called without a frame, as if one were sent, each time that nothing has come. The frame is
// its to keep and to change.
type Filter = func(sent bool, frame []byte) [][]byte

// OpenFiltered opens two NICs that can reach each other, as Open does; what crosses the wire at
// b's end goes through f. It skips the check if it cannot have b's wire filtered.
type OpenFiltered func(t T, f Filter) (a, b *via.NIC)

// FaultChecks are the checks that need faults on the wire, or a peer that does what it must not.
// What they check is the first NIC: the second one is the peer.
func FaultChecks(open OpenFiltered) []Check {
	var checks []Check
	for _, c := range []struct {
		name string
		f    func(T, *Pair, *spoiled)
	}{
		{"a message waits for the write before it", testMessageAfterWrite},
		{"a write does not overtake another", testWriteOvertakes},
		{"a message waits for all of its frames", testMessageWhole},
		{"frames in the same place", testOverlap},
		{"acknowledged again", testAcknowledgedAgain},
		{"acknowledged before the disconnect", testAcknowledgedFirst},
		{"unreliable messages twice", testTwiceUnreliable},
		{"too many reads", testTooManyReads},
		{"a read that is too long", testReadTooLong},
	} {
		checks = append(checks, Check{Section: FaultSection, Name: c.name, opens: func(t T) {
			w := &spoiled{}
			c.f(t, NewPair(open(t, w.filter)), w)
		}})
	}
	return checks
}

// wantNotDone fails the test if a receive is complete.
func wantNotDone(t T, e *End, why string) {
	t.Helper()
	if _, err := e.VI.RecvDone(); err != via.ErrNotDone {
		t.Fatalf("a receive has ended (%v): %s", err, why)
	}
}

// fromPeer makes two connected ends: x at the NIC that is checked, and y at the peer, which may
// write and read m.
func fromPeer(t T, p *Pair, a via.VIAttributes, size int) (x, y *End, m *via.Memory) {
	t.Helper()
	y, x, m = connectRDMA(t, NewPair(p.B, p.A), a, size, 1)
	return x, y, m
}

// loseWrite has the wire lose the write to an address. What it returns reports whether the
// message that is sent then has been acknowledged.
func loseWrite(w *spoiled, address uint64) (arrived func() bool) {
	var message uint32
	acknowledged := false
	w.set(func(sent bool, f frame) [][]byte {
		switch last, _ := f.ends(); {
		case sent && f.Type == descriptors.FrameWrite && f.extension().Address == address:
			return nil
		case sent && f.Type == descriptors.FrameData && last:
			message = f.PSN
		case !sent:
			acknowledged = acknowledged || message != 0 && f.acknowledges(message)
		}
		return [][]byte{f.bytes}
	})
	return func() bool { return acknowledged }
}

// testMessageAfterWrite loses a write, and has the message behind it arrive.
func testMessageAfterWrite(t T, p *Pair, w *spoiled) {
	const size = 1000
	x, y, m := fromPeer(t, p, via.VIAttributes{}, size)
	OK(t, x.VI.PostRecv(x.Prepare(t, x.Recv[0], 0, size)))
	arrived := loseWrite(w, m.Address())
	pattern(y.Memory.Bytes()[:size], 1)
	OK(t, y.VI.PostSend(y.writeTo(t, y.Send[0], 0, size, m, 0)))
	OK(t, y.VI.PostSend(y.Prepare(t, y.Send[1], 0, size)))
	w.until(t, p, y, "the message to be acknowledged", arrived)
	wantNotDone(t, x, "what was written before its message is not there")
	w.set(nil)
	p.MustTake(t, x.VI.RecvDone)
	if !bytes.Equal(m.Bytes(), y.Memory.Bytes()[:size]) {
		t.Error("a receive was complete before what was written earlier was there")
	}
	p.MustTake(t, y.VI.SendDone)
	p.MustTake(t, y.VI.SendDone)
}

// testWriteOvertakes loses the first of two writes, of which the second lies over the first but
// for a byte, and has the second arrive, and a message behind it that shows that it has.
func testWriteOvertakes(t T, p *Pair, w *spoiled) {
	const size = 1000
	x, y, m := fromPeer(t, p, via.VIAttributes{}, 1+size)
	OK(t, x.VI.PostRecv(x.Prepare(t, x.Recv[0], 0, size)))
	arrived := loseWrite(w, m.Address())
	pattern(y.Memory.Bytes()[:2*size], 2)
	OK(t, y.VI.PostSend(y.writeTo(t, y.Send[0], 0, size, m, 0)))
	OK(t, y.VI.PostSend(y.writeTo(t, y.Send[1], size, size, m, 1)))
	OK(t, y.VI.PostSend(y.Prepare(t, y.Send[2], 0, size)))
	w.until(t, p, y, "the message to be acknowledged", arrived)
	wantNotDone(t, x, "what was written before its message is not there")
	if !bytes.Equal(m.Bytes(), make([]byte, 1+size)) {
		t.Error("a write has landed before an earlier one")
	}
	w.set(nil)
	p.MustTake(t, x.VI.RecvDone)
	if b := m.Bytes(); b[0] != y.Memory.Bytes()[0] || !bytes.Equal(b[1:], y.Memory.Bytes()[size:2*size]) {
		t.Error("what is there is not what the later of two writes has written")
	}
	for range 3 {
		p.MustTake(t, y.VI.SendDone)
	}
}

// manyFrames is the length of a message of some frames.
func manyFrames(t T, p *Pair) int {
	a, b := p.A.Query(), p.B.Query()
	n := 3 * int(b.MTU)
	if n > int(min(a.MaxTransfer, b.MaxTransfer)) {
		t.Skip("a message of some frames is longer than a transfer may be")
	}
	return n
}

// testMessageWhole loses the last frame but one of a message, and has the last one arrive.
func testMessageWhole(t T, p *Pair, w *spoiled) {
	size := manyFrames(t, p)
	x, y := p.Connect(t, Setup{Attributes: via.VIAttributes{MaxTransfer: uint32(size)}, Memory: size})
	OK(t, x.VI.PostRecv(x.Prepare(t, x.Recv[0], 0, size)))
	var end uint32
	arrived := false
	w.set(func(sent bool, f frame) [][]byte {
		if !sent {
			arrived = arrived || end != 0 && f.acknowledges(end)
		} else if last, lose := f.ends(); f.Type == descriptors.FrameData && lose {
			return nil
		} else if f.Type == descriptors.FrameData && last {
			end = f.PSN
		}
		return [][]byte{f.bytes}
	})
	pattern(y.Memory.Bytes(), 3)
	OK(t, y.VI.PostSend(y.Prepare(t, y.Send[0], 0, size)))
	w.until(t, p, y, "the last frame to be acknowledged", func() bool { return arrived })
	wantNotDone(t, x, "a frame of its message is missing")
	w.set(nil)
	wantMessage(t, p, x, y, size)
}

// wantMessage takes a message that y has sent from the beginning of its memory.
func wantMessage(t T, p *Pair, x, y *End, size int) {
	t.Helper()
	d := p.MustTake(t, x.VI.RecvDone)
	if int(d.Length()) != size || !bytes.Equal(x.Memory.Bytes()[:size], y.Memory.Bytes()[:size]) {
		t.Errorf("%d bytes have come that are not the %d that were sent", d.Length(), size)
	}
	p.MustTake(t, y.VI.SendDone)
}

// testOverlap puts a frame of a message where the one before it was, once. The one before has
// arrived: else the wrong frame is the first that says what lies there.
func testOverlap(t T, p *Pair, w *spoiled) {
	size := manyFrames(t, p)
	x, y := p.Connect(t, Setup{Attributes: via.VIAttributes{MaxTransfer: uint32(size)}, Memory: size})
	OK(t, x.VI.PostRecv(x.Prepare(t, x.Recv[0], 0, size)))
	var before uint32
	arrived, forged := false, false
	w.set(func(sent bool, f frame) [][]byte {
		if !sent {
			arrived = arrived || before != 0 && f.acknowledges(before)
		} else if _, move := f.ends(); f.Type == descriptors.FrameData && move && !forged {
			if before = f.PSN - 1; !arrived {
				return nil
			}
			forged = true
			return [][]byte{f.forged(len(f.bytes), func(h *descriptors.Header) { h.Offset -= uint32(h.Length) })}
		}
		return [][]byte{f.bytes}
	})
	pattern(y.Memory.Bytes(), 4)
	OK(t, y.VI.PostSend(y.Prepare(t, y.Send[0], 0, size)))
	wantMessage(t, p, x, y, size)
	w.until(t, p, y, "the frame", func() bool { return forged })
}

// testAcknowledgedAgain loses what acknowledges a message until the message was sent again. The
// peer does not ask.
func testAcknowledgedAgain(t T, p *Pair, w *spoiled) {
	const size = 10
	x, y := p.Connect(t, Setup{})
	for _, d := range x.Recv[:2] {
		OK(t, x.VI.PostRecv(x.Prepare(t, d, 0, size)))
	}
	times := 0
	w.set(func(sent bool, f frame) [][]byte {
		if sent && f.Type == descriptors.FrameData {
			times++
		}
		if times > 0 && (f.Type == descriptors.FrameProbe || !sent && f.Type == descriptors.FrameAck && times == 1) {
			return nil
		}
		return [][]byte{f.bytes}
	})
	pattern(y.Memory.Bytes()[:size], 5)
	OK(t, y.VI.PostSend(y.Prepare(t, y.Send[0], 0, size)))
	wantMessage(t, p, x, y, size)
	wantNotDone(t, x, "a message that was sent once has come twice")
	w.set(nil)
	exchange(t, p, x, y, size, 1)
}

// testAcknowledgedFirst: a VI that disconnects after it has received a message acknowledges the
// message first. Wires may lose that, but not most of it.
func testAcknowledgedFirst(t T, p *Pair, w *spoiled) {
	const size, rounds, most = 10, 10, 7
	x, y := NewEnd(t, p.A, Setup{}), NewEnd(t, p.B, Setup{})
	untold := 0
	for range rounds {
		var message uint32
		acknowledged, over := false, false
		w.set(func(sent bool, f frame) [][]byte {
			switch {
			case sent && f.Type == descriptors.FrameData:
				message = f.PSN
			case !sent && f.Type == descriptors.FrameDisconnect && f.Message == 1 && !over:
				if over = true; !acknowledged {
					untold++
				}
			case !sent:
				acknowledged = acknowledged || message != 0 && f.acknowledges(message)
			}
			return [][]byte{f.bytes}
		})
		ctx := Context(t)
		OK(t, ConnectVIs(ctx, x.VI, y.VI, t.Name()))
		OK(t, x.VI.PostRecv(x.Prepare(t, x.Recv[0], 0, size)))
		OK(t, y.VI.PostSend(y.Prepare(t, y.Send[0], 0, size)))
		p.MustTake(t, x.VI.RecvDone)
		OK(t, x.VI.Disconnect(ctx))
		p.MustTake(t, y.VI.SendDone)
		w.until(t, p, y, "the disconnect", func() bool { return over })
		wantBroken(t, p, y, y, via.ReliableDelivery)
		OK(t, y.VI.Disconnect(ctx))
	}
	if untold > most {
		t.Errorf("%d of %d messages were not acknowledged before the disconnect", untold, rounds)
	}
}

// testTwiceUnreliable sends each unreliable message twice, with short and long ones in turn.
func testTwiceUnreliable(t T, p *Pair, w *spoiled) {
	const messages = 20
	size := manyFrames(t, p)
	a := via.VIAttributes{Reliability: via.Unreliable, MaxTransfer: uint32(size)}
	x, y := p.Connect(t, Setup{Attributes: a, Memory: size})
	var frames [][]byte
	w.set(func(sent bool, f frame) [][]byte {
		if !sent || f.Type != descriptors.FrameData {
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
		OK(t, x.VI.PostRecv(x.Prepare(t, d, 0, size)))
	}
	sent, last := uint32(0), uint32(0)
	p.Until(t, "messages", func() bool {
		d, err := x.VI.RecvDone()
		if err == via.ErrNotDone {
			length := 10
			if sent++; sent%2 == 0 {
				length = size
			}
			y.Prepare(t, y.Send[0], 0, length).SetImmediate(sent)
			OK(t, y.VI.PostSend(y.Send[0]))
			p.MustTake(t, y.VI.SendDone)
			return false
		}
		OK(t, err)
		if n, ok := d.Immediate(); !ok || n <= last {
			t.Fatalf("message %d came after message %d", n, last)
		} else {
			last = n
		}
		OK(t, x.VI.PostRecv(x.Prepare(t, d, 0, size)))
		return last >= messages
	})
}

// testTooManyReads has a peer ask for more reads at a time than it may, and take nothing of what
// comes.
func testTooManyReads(t T, p *Pair, w *spoiled) {
	const size, asked, bursts = 100, descriptors.MaxReads + 8, 3
	x, y, m := fromPeer(t, p, via.VIAttributes{}, size)
	bystanderX, bystanderY := p.Connect(t, Setup{})
	var request frame
	looks, sure := 0, 0
	taken := func() uint32 { return request.PSN + descriptors.MaxReads }
	rule := func(sent bool, f frame) [][]byte {
		switch {
		case sent && f.Type == descriptors.FrameReadRequest:
			request = f
		case request.Header == nil || f.DestinationEndpoint != request.SourceEndpoint && f.SourceEndpoint != request.SourceEndpoint:
			return [][]byte{f.bytes}
		case !sent && int32(f.Ack-taken()) > 0 && f.Type != descriptors.FrameDisconnect:
			w.wrong = "more reads were taken than a VI may have under way"
		case !sent && f.Type == descriptors.FrameAck && f.Ack == taken():
			sure++
		}
		return nil
	}
	w.set(rule)
	w.mu.Lock()
	w.idle = func() (out [][]byte) {
		if looks++; request.Header == nil || looks%64 != 1 {
			return nil
		}
		for i := range uint32(asked) {
			out = append(out, request.forged(len(request.bytes), func(h *descriptors.Header) { h.PSN += i }))
		}
		return append(out, request.probe())
	}
	w.mu.Unlock()
	OK(t, y.VI.PostSend(y.readFrom(t, y.Send[0], 0, size, m, 0)))
	w.until(t, p, y, "as many reads to be taken as may be", func() bool { return sure > bursts })
	wantState(t, x.VI, via.Connected)
	w.set(nil)
	exchange(t, p, bystanderX, bystanderY, 1000, 1)
}

// testReadTooLong has a peer ask for more than a transfer may have.
func testReadTooLong(t T, p *Pair, w *spoiled) {
	const most, answers = 4096, 2
	x, y, m := fromPeer(t, p, via.VIAttributes{MaxTransfer: most}, 2*most)
	var request uint32
	refused := 0
	w.set(func(sent bool, f frame) [][]byte {
		switch {
		case sent && f.Type == descriptors.FrameReadRequest && refused < answers:
			request = f.PSN
			return [][]byte{f.forged(len(f.bytes), func(h *descriptors.Header) { h.Extent++ }), f.probe()}
		case !sent && f.Type == descriptors.FrameReadResponse && f.Extent > most:
			w.wrong = "a read was served that is longer than a transfer may be"
		case !sent && request != 0 && refused < answers && f.acknowledges(request):
			w.wrong = "a read was taken that is longer than a transfer may be"
		case !sent && request != 0 && f.Type == descriptors.FrameAck:
			refused++
		}
		return [][]byte{f.bytes}
	})
	pattern(m.Bytes(), 6)
	OK(t, y.VI.PostSend(y.readFrom(t, y.Send[0], 0, most, m, 0)))
	w.until(t, p, y, "the read to be refused", func() bool { return refused >= answers })
	wantOperation(t, p.MustTake(t, y.VI.SendDone), most, operationRead)
	if !bytes.Equal(y.Memory.Bytes()[:most], m.Bytes()[:most]) {
		t.Error("a read brought something else")
	}
	wantState(t, x.VI, via.Connected)
}
