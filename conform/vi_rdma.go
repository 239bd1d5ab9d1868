package conform

import (
	"bytes"
	"errors"
	"math/rand/v2"

	"github.com/trapeze-nic/trapeze/via"
)

// connectRDMA makes two connected ends that may write and read each other's memory, and
// such memory of the second end.
func connectRDMA(w *World, a via.VIAttributes, size, segments int) (x, y *End, target *via.Memory) {
	w.Helper()
	a.RDMAWrite, a.RDMARead = true, a.Reliability != via.Unreliable
	x, y = w.Connect(Setup{Attributes: a, Segments: 1 + segments, Memory: 4 * size})
	return x, y, Must(w.B.Alloc(Context(w), size, via.MemoryAttributes{RDMAWrite: true, RDMARead: true}))(w)
}

// writeTo and readFrom make d an RDMA operation between the first length bytes at offset
// of e's memory and those at the beginning of m.
func (e *End) writeTo(t T, d *via.Descriptor, offset, length int, m *via.Memory, at int) *via.Descriptor {
	t.Helper()
	OK(t, e.Prepare(t, d, offset, length).SetRDMAWrite(m.Address()+uint64(at), m.Handle()))
	return d
}

func (e *End) readFrom(t T, d *via.Descriptor, offset, length int, m *via.Memory, at int) *via.Descriptor {
	t.Helper()
	OK(t, e.Prepare(t, d, offset, length).SetRDMARead(m.Address()+uint64(at), m.Handle()))
	return d
}

// wantOperation checks how a descriptor says that it has completed.
func wantOperation(t T, d *via.Descriptor, length int, want via.Status) {
	t.Helper()
	const operation = 0x70000 // bits 18:16
	if int(d.Length()) != length || d.Status()&operation != want {
		t.Fatalf("%d bytes, operation %#x; want %d, %#x", d.Length(), uint32(d.Status()&operation), length, uint32(want))
	}
}

const (
	operationWrite       via.Status = 0x20000
	operationRemoteWrite via.Status = 0x30000
	operationRead        via.Status = 0x40000
)

func testRDMAWrite(w *World) {
	x, _, m := connectRDMA(w, via.VIAttributes{}, 40_000, 1)
	for i, n := range sizes {
		pattern(x.Memory.Bytes()[:n], uint64(i))
		want := bytes.Clone(m.Bytes())
		copy(want[i:], x.Memory.Bytes()[:n])
		OK(w, x.VI.PostSend(x.writeTo(w, x.Send[0], 0, n, m, i)))
		wantOperation(w, w.MustTake(x.VI.SendDone), n, operationWrite)
		if !bytes.Equal(m.Bytes(), want) {
			w.Fatalf("a write of %d bytes did not land where it should", n)
		}
	}
}

func testRDMAImmediate(w *World) {
	x, y, m := connectRDMA(w, via.VIAttributes{}, 40_000, 1)
	for i, n := range sizes {
		pattern(x.Memory.Bytes()[:n], uint64(i))
		y.Recv[0].Prepare()
		OK(w, y.VI.PostRecv(y.Recv[0]))
		d := x.writeTo(w, x.Send[0], 0, n, m, i)
		d.SetImmediate(uint32(1000 + i))
		OK(w, x.VI.PostSend(d))
		got := w.MustTake(y.VI.RecvDone)
		wantOperation(w, got, n, operationRemoteWrite)
		if v, ok := got.Immediate(); !ok || v != uint32(1000+i) || !bytes.Equal(m.Bytes()[i:i+n], x.Memory.Bytes()[:n]) {
			w.Fatalf("a write of %d bytes: immediate data %d, %v", n, v, ok)
		}
		wantOperation(w, w.MustTake(x.VI.SendDone), n, operationWrite)
	}
	exchange(w, x, y, 1000, 1)
	exchange(w, y, x, 1000, 2)
}

// testRDMAUnreliable writes until the last byte has landed: a wire may lose writes.
func testRDMAUnreliable(w *World) {
	x, y, m := connectRDMA(w, via.VIAttributes{Reliability: via.Unreliable}, 8192, 1)
	for i, n := range []int{1, 64, 5000} {
		data := x.Memory.Bytes()[:n]
		pattern(data, uint64(i))
		clear(m.Bytes())
		w.Until("a write", func() bool {
			OK(w, x.VI.PostSend(x.writeTo(w, x.Send[0], 0, n, m, 7)))
			wantOperation(w, w.MustTake(x.VI.SendDone), n, operationWrite)
			w.B.Poll()
			return bytes.Equal(m.Bytes()[7:7+n], data)
		})
	}
	OK(w, x.VI.PostSend(x.readFrom(w, x.Send[0], 0, 10, m, 0)))
	d, err := w.Take(x.VI.SendDone)
	wantStatus(w, "a read without reliability", d, err, via.StatusFormatError)
	wantState(w, y.VI, via.Connected)
}

func testRDMARead(w *World) {
	x, _, m := connectRDMA(w, via.VIAttributes{}, 40_000, 1)
	pattern(m.Bytes(), 1)
	for i, n := range sizes {
		clear(x.Memory.Bytes())
		OK(w, x.VI.PostSend(x.readFrom(w, x.Send[0], 3, n, m, i)))
		wantOperation(w, w.MustTake(x.VI.SendDone), n, operationRead)
		if b := x.Memory.Bytes(); !bytes.Equal(b[3:3+n], m.Bytes()[i:i+n]) || b[3+n] != 0 {
			w.Fatalf("a read of %d bytes brought something else", n)
		}
	}
}

// testRDMASegments gathers and scatters as many segments as VIA asks for, besides the
// address segment.
func testRDMASegments(w *World) {
	const segments, each = 252, 71
	x, _, m := connectRDMA(w, via.VIAttributes{}, 20_000, segments)
	pattern(x.Memory.Bytes(), 5)
	write, read := x.Send[0], x.Send[1]
	OK(w, write.SetRDMAWrite(m.Address(), m.Handle()))
	OK(w, read.SetRDMARead(m.Address(), m.Handle()))
	var want []byte
	for i := range segments {
		from := (segments - 1 - i) * each
		OK(w, x.Memory.AddTo(write, from, each))
		OK(w, x.Memory.AddTo(read, 40_000+from, each))
		want = append(want, x.Memory.Bytes()[from:from+each]...)
	}
	OK(w, x.VI.PostSend(write))
	OK(w, x.VI.PostSend(read))
	wantOperation(w, w.MustTake(x.VI.SendDone), segments*each, operationWrite)
	wantOperation(w, w.MustTake(x.VI.SendDone), segments*each, operationRead)
	if !bytes.Equal(m.Bytes()[:len(want)], want) || !bytes.Equal(x.Memory.Bytes()[40_000:][:len(want)], x.Memory.Bytes()[:len(want)]) {
		w.Error("the segments were not moved in order")
	}
}

// testRDMAMixed posts sends, writes and reads as they come. Completions come in order. All of it is
// as if each had happened at once, except that reads may see what was written after them.
func testRDMAMixed(w *World) {
	const size, rounds = 12_000, 60
	x, y, m := connectRDMA(w, via.VIAttributes{}, size, 1)
	r := rand.New(rand.NewPCG(1, 15))
	model := make([]byte, size)
	for round := range rounds {
		n, at := r.IntN(size/2), r.IntN(size/2)
		data := x.Memory.Bytes()[:n]
		pattern(data, uint64(round))
		x.writeTo(w, x.Send[0], 0, n, m, at)
		copy(model[at:], data)
		x.readFrom(w, x.Send[1], size, size, m, 0)
		x.Prepare(w, x.Send[2], 0, n)
		x.writeTo(w, x.Send[3], n/2, n-n/2, m, 0).SetImmediate(uint32(round))
		x.readFrom(w, x.Send[4], 2*size, size, m, 0)
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, size)))
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[1], size, 1)))
		OK(w, y.VI.PostSend(y.Prepare(w, y.Send[0], 0, 100)))
		OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 3*size, 100)))
		for _, d := range x.Send[:5] {
			OK(w, x.VI.PostSend(d))
		}
		wantOperation(w, w.MustTake(y.VI.RecvDone), n, 0x10000)
		if !bytes.Equal(m.Bytes()[at:at+n], data) && at > n { // else the second write may have landed
			w.Fatalf("round %d: the receive came before the write that was posted first", round)
		}
		wantOperation(w, w.MustTake(y.VI.RecvDone), n-n/2, operationRemoteWrite)
		copy(model, data[n/2:])
		for i := range 5 {
			if d := w.MustTake(x.VI.SendDone); d != x.Send[i] {
				w.Fatalf("round %d: completion %d is of another descriptor", round, i)
			}
		}
		w.MustTake(x.VI.RecvDone)
		w.MustTake(y.VI.SendDone)
		if !bytes.Equal(m.Bytes(), model) || !bytes.Equal(x.Memory.Bytes()[2*size:3*size], model) || !bytes.Equal(y.Memory.Bytes()[:n], data) {
			w.Fatalf("round %d: bytes are not what they should be", round)
		}
	}
}

// testFence: a write behind a fence does not show in the reads before it.
func testFence(w *World) {
	const size = 16_000
	x, _, m := connectRDMA(w, via.VIAttributes{}, size, 1)
	for round := range 20 {
		pattern(m.Bytes(), uint64(2*round))
		want := bytes.Clone(m.Bytes())
		pattern(x.Memory.Bytes()[:size], uint64(2*round+1))
		x.readFrom(w, x.Send[0], size, size, m, 0)
		x.readFrom(w, x.Send[1], 2*size, size, m, 0)
		x.writeTo(w, x.Send[2], 0, size, m, 0).SetFence()
		for _, d := range x.Send[:3] {
			OK(w, x.VI.PostSend(d))
		}
		for range 3 {
			w.MustTake(x.VI.SendDone)
		}
		if b := x.Memory.Bytes(); !bytes.Equal(b[size:2*size], want) || !bytes.Equal(b[2*size:3*size], want) || !bytes.Equal(m.Bytes(), b[:size]) {
			w.Fatalf("round %d: the write did not wait for the reads", round)
		}
	}
}

// testRDMAAllowed: an end knows what the other allows, and sends nothing that it does not.
func testRDMAAllowed(w *World) {
	ctx := Context(w)
	for _, rights := range []via.VIAttributes{{}, {RDMAWrite: true}, {RDMARead: true}} {
		x, y := NewEnd(w, w.A, Setup{Segments: 2}), NewEnd(w, w.B, Setup{Attributes: rights, Segments: 2})
		m := Must(w.B.Alloc(ctx, 100, via.MemoryAttributes{RDMAWrite: true, RDMARead: true}))(w)
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 100)))
		remote := make(chan via.Remote, 1)
		go func() {
			c, err := w.B.ConnectWait(ctx, "rights")
			if err == nil {
				_, err = c.Accept(ctx, y.VI)
			}
			if err != nil {
				w.Error(err)
			}
			remote <- c.Remote
		}()
		got := Must(Request(ctx, x.VI, via.Address{MAC: w.B.Query().Address, Discriminator: "rights"}))(w)
		if r := <-remote; got.RDMAWrite != rights.RDMAWrite || got.RDMARead != rights.RDMARead || r.RDMAWrite || r.RDMARead {
			w.Errorf("%+v: the client is told %+v, the server %+v", rights, got, r)
		}
		var d *via.Descriptor
		if rights.RDMAWrite {
			d = x.readFrom(w, x.Send[0], 0, 100, m, 0)
		} else {
			d = x.writeTo(w, x.Send[0], 0, 100, m, 0)
		}
		x.Memory.Bytes()[0] = 1
		OK(w, x.VI.PostSend(d))
		d, err := w.Take(x.VI.SendDone)
		wantStatus(w, "more than the other end allows", d, err, via.StatusRDMAProtection)
		wantBroken(w, x, y, via.ReliableDelivery)
		if m.Bytes()[0] != 0 {
			w.Error("something was written")
		}
	}
}

// testRDMARefused names memory that the other end may not use. The descriptor completes
// with an error and the connection breaks; no byte is moved, and all else goes on.
func testRDMARefused(w *World) {
	ctx := Context(w)
	bystanderA, bystanderB := w.Connect(Setup{})
	tag := Must(w.B.CreatePtag(ctx))(w)
	const size = 4096
	all := via.MemoryAttributes{RDMAWrite: true, RDMARead: true}
	good := Must(w.B.Alloc(ctx, size, all))(w)
	foreign := Must(w.B.Alloc(ctx, size, via.MemoryAttributes{Ptag: tag, RDMAWrite: true, RDMARead: true}))(w)
	local := Must(w.B.Alloc(ctx, size, via.MemoryAttributes{}))(w)
	gone := Must(w.B.Alloc(ctx, size, all))(w)
	address, handle := gone.Address(), gone.Handle()
	OK(w, gone.Close(ctx))
	for _, c := range []struct {
		name    string
		address uint64
		handle  uint32
	}{
		{"memory of another ptag", foreign.Address(), foreign.Handle()},
		{"memory without the right", local.Address(), local.Handle()},
		{"memory that was deregistered", address, handle},
		{"handle without a region", good.Address(), 0xdeadbeef},
		{"handle 0", good.Address(), 0},
		{"past the end", good.Address() + 1, good.Handle()},
		{"before the start", good.Address() - 1, good.Handle()},
		{"around the end of the address space", 1<<64 - 50, good.Handle()},
	} {
		for _, operation := range []string{"write", "write with immediate data", "read"} {
			w.part(operation+"/"+c.name, func(w *World) {
				x, y, _ := connectRDMA(w, via.VIAttributes{}, size, 1)
				OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 100)))
				d := x.Prepare(w, x.Send[1], 0, size)
				pattern(x.Memory.Bytes(), 1)
				if operation == "read" {
					OK(w, d.SetRDMARead(c.address, c.handle))
				} else if OK(w, d.SetRDMAWrite(c.address, c.handle)); operation != "write" {
					d.SetImmediate(1)
				}
				OK(w, x.VI.PostSend(x.writeTo(w, x.Send[0], 0, 10, good, 0)))
				OK(w, x.VI.PostSend(d))
				OK(w, x.VI.PostSend(x.writeTo(w, x.Send[2], 0, 10, good, 100)))
				w.MustTake(x.VI.SendDone)
				d, err := w.Take(x.VI.SendDone)
				wantStatus(w, operation, d, err, via.StatusRDMAProtection)
				d, err = w.Take(x.VI.SendDone)
				wantStatus(w, "the write behind it", d, err, via.StatusFlushed)
				d, err = w.Take(y.VI.RecvDone)
				want := via.StatusFlushed
				if operation == "write with immediate data" {
					want = via.StatusRDMAProtection
				}
				wantStatus(w, "the receive", d, err, want)
				wantBroken(w, x, y, via.ReliableDelivery)
				if b := good.Bytes(); !bytes.Equal(b[:10], x.Memory.Bytes()[:10]) || !bytes.Equal(b[10:], make([]byte, size-10)) {
					w.Error("more than the first write has landed")
				}
			})
		}
	}
	for _, m := range []*via.Memory{foreign, local} {
		if !bytes.Equal(m.Bytes(), make([]byte, size)) {
			w.Error("memory was written that may not be")
		}
	}
	exchange(w, bystanderA, bystanderB, 5000, 1)
	_, err := w.B.Alloc(ctx, 100, via.MemoryAttributes{ReadOnly: true, RDMAWrite: true})
	wantError(w, "memory that only others may write", err, via.ErrInvalidParameter)
}

// testRDMADeregistered takes memory away while it is written and read. What is posted ends
// once, and nothing is written to memory that has been taken away.
func testRDMADeregistered(w *World) {
	const size, posts = 20_000, 20
	ctx := Context(w)
	for _, read := range []bool{false, true} {
		x, _, keep := connectRDMA(w, via.VIAttributes{}, size, 1)
		m := Must(w.B.Register(ctx, keep.Bytes(), via.MemoryAttributes{RDMAWrite: true, RDMARead: true}))(w)
		pattern(x.Memory.Bytes(), 3)
		for i := range posts {
			d := x.Send[i]
			if read {
				x.readFrom(w, d, 0, size, m, 0)
			} else {
				x.writeTo(w, d, 0, size, m, 0)
			}
			OK(w, x.VI.PostSend(d))
		}
		taken := 0
		for ; taken < 3; taken++ {
			w.MustTake(x.VI.SendDone)
		}
		OK(w, m.Close(ctx))
		clear(keep.Bytes())
		refused := 0
		for ; taken < posts; taken++ {
			switch d, err := w.Take(x.VI.SendDone); {
			case err == nil && refused == 0: // it was done before
			case errors.Is(err, via.ErrDescriptor) && refused == 0 && d.Status()&via.StatusRDMAProtection != 0:
				refused++
			case errors.Is(err, via.ErrDescriptor) && d.Status()&via.StatusFlushed != 0:
			default:
				w.Fatalf("descriptor %d of %d: %v", taken, posts, err)
			}
		}
		if _, err := x.VI.SendDone(); err != via.ErrQueueEmpty {
			w.Errorf("one more completion: %v", err)
		}
		if !bytes.Equal(keep.Bytes(), make([]byte, size)) {
			w.Error("memory was written after it had been taken away")
		}
	}
}

// testRDMAFlushed: operations that wait behind a send say what they were when they are
// flushed, though the NIC may not have looked at them.
func testRDMAFlushed(w *World) {
	x, _, m := connectRDMA(w, via.VIAttributes{}, 1000, 1)
	for _, d := range []*via.Descriptor{x.Prepare(w, x.Send[0], 0, 10), // it finds no receive
		x.writeTo(w, x.Send[1], 0, 10, m, 0), x.readFrom(w, x.Send[2], 0, 10, m, 0)} {
		OK(w, x.VI.PostSend(d))
	}
	OK(w, x.VI.Disconnect(Context(w)))
	for i, want := range []via.Status{0, operationWrite, operationRead} {
		d, err := w.Take(x.VI.SendDone)
		wantStatus(w, "a descriptor that was flushed", d, err, via.StatusFlushed)
		if d != x.Send[i] {
			w.Fatal("another descriptor came back")
		}
		wantOperation(w, d, 0, want)
	}
}

// testNeedReceives: a VI that needs receives breaks its connection when a message finds
// none; one that has them works like any other.
func testNeedReceives(w *World) {
	x, y := w.Connect(Setup{Attributes: via.VIAttributes{NeedReceives: true}})
	for i := range 3 {
		exchange(w, x, y, 1000, uint64(i))
		exchange(w, y, x, 20_000, uint64(i))
	}
	OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 0, 10)))
	OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 10)))
	d, err := w.Take(x.VI.SendDone)
	wantStatus(w, "a send that finds no receive", d, err, via.StatusRemoteDescriptor)
	wantBroken(w, x, y, via.ReliableDelivery)
	d, err = w.Take(x.VI.RecvDone)
	wantStatus(w, "a receive", d, err, via.StatusFlushed)
	_, err = w.A.CreateVI(Context(w), via.VIAttributes{NeedReceives: true, Reliability: via.Unreliable}, nil, nil)
	wantError(w, "receives needed without reliability", err, via.ErrInvalidParameter)
}
