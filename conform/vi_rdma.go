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
		_, err := x.VI.SendDone()
		wantEqual(w, err, error(via.ErrQueueEmpty), "one more completion")
		if !bytes.Equal(keep.Bytes(), make([]byte, size)) {
			w.Error("memory was written after it had been taken away")
		}
	}
}
