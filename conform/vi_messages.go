package conform

import (
	"bytes"
	"math/rand/v2"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// pattern fills b with bytes that depend on seed and position.
func pattern(b []byte, seed uint64) {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	_, _ = r.Read(b) // never fails
}

func testAttributes(w *World) {
	a := w.A.Query()
	if a.MaxTransfer < via.DefaultMaxTransfer || a.MaxSegments < 252 || a.Reliability&via.Unreliable == 0 {
		w.Errorf("%+v is less than VIA asks for", a)
	}
	if !a.ThreadSafe || a.MaxVIs < 2 || a.MaxCQs < 1 || a.MaxRegions < 4 || a.MaxDescriptors < 2 || a.MTU < 64 {
		w.Errorf("%+v is too little to be useful", a)
	}
	if a.MaxRegion == 0 || a.MaxRegistered < a.MaxRegion || a.ProviderVersion == 0 {
		w.Errorf("%+v: limits of memory, or a version, are missing", a)
	}
	if a.Address == w.B.Query().Address || a.Address.IsMulticast() {
		w.Errorf("addresses %v and %v", a.Address, w.B.Query().Address)
	}
}

var sizes = []int{0, 1, 7, 63, 64, 65, 1000, 4096, 4097, 8191, 8192, 8193, 32767, 32768}

// exchange sends one message of n bytes and compares what arrives.
func exchange(w *World, from, to *End, n int, seed uint64) {
	w.Helper()
	data := from.Memory.Bytes()[:n]
	pattern(data, seed)
	OK(w, to.VI.PostRecv(to.Prepare(w, to.Recv[0], 0, n)))
	OK(w, from.VI.PostSend(from.Prepare(w, from.Send[0], 0, n)))
	d := w.MustTake(to.VI.RecvDone)
	if d != to.Recv[0] || int(d.Length()) != n {
		w.Fatalf("received %d bytes with descriptor %p, want %d with %p", d.Length(), d, n, to.Recv[0])
	}
	if _, ok := d.Immediate(); ok {
		w.Error("immediate data that was not sent")
	}
	if !bytes.Equal(to.Memory.Bytes()[:n], data) {
		w.Fatalf("message of %d bytes arrived changed", n)
	}
	if d := w.MustTake(from.VI.SendDone); d != from.Send[0] || int(d.Length()) != n {
		w.Fatalf("sent %d bytes with descriptor %p, want %d with %p", d.Length(), d, n, from.Send[0])
	}
}

// testMessagesUnreliable sends each message until it has arrived: a wire may
// lose some and delay others, but none may arrive changed.
func testMessagesUnreliable(w *World) {
	const limit = via.DefaultMaxTransfer
	x, y := w.Connect(Setup{Attributes: via.VIAttributes{Reliability: via.Unreliable}})
	want := make([]byte, limit)
	receive := func() (id int, err error) {
		d, err := y.VI.RecvDone()
		if err != nil {
			return 0, err
		}
		v, ok := d.Immediate()
		if !ok || int(v) >= len(sizes) || int(d.Length()) != sizes[v] {
			w.Fatalf("message %d of %d bytes arrived that was not sent", v, d.Length())
		}
		pattern(want[:sizes[v]], uint64(v))
		if !bytes.Equal(y.Memory.Bytes()[:sizes[v]], want[:sizes[v]]) {
			w.Fatalf("message of %d bytes arrived changed", sizes[v])
		}
		OK(w, y.VI.PostRecv(y.Prepare(w, d, 0, limit)))
		return int(v), nil
	}
	OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, limit)))
	for i, n := range sizes {
		pattern(x.Memory.Bytes()[:n], uint64(i))
		var next time.Time
		w.Until("the message", func() bool {
			if now := time.Now(); now.After(next) {
				next = now.Add(20 * time.Millisecond)
				d := x.Prepare(w, x.Send[0], 0, n)
				d.SetImmediate(uint32(i))
				OK(w, x.VI.PostSend(d))
				w.MustTake(x.VI.SendDone)
			}
			id, err := receive()
			if err != nil && err != via.ErrNotDone {
				w.Fatal(err)
			}
			return err == nil && id == i
		})
	}
}

func testMessagesLarge(w *World) {
	limit := min(w.A.Query().MaxTransfer, w.B.Query().MaxTransfer, 16<<20) // more would take the memory of tests
	x, y := w.Connect(Setup{Attributes: via.VIAttributes{MaxTransfer: limit}, Memory: int(limit)})
	for i, n := range []int{1 << 20, int(limit)} {
		exchange(w, x, y, min(n, int(limit)), uint64(i))
	}
}

func testScatterGather(w *World) {
	const segments, total = 252, 20000
	x, y := w.Connect(Setup{Segments: segments})
	r := rand.New(rand.NewPCG(1, 2))
	data := x.Memory.Bytes()[:total]
	pattern(data, 3)
	// Both ends cut the message at random places, empty segments included, and
	// lay the pieces in reverse order.
	cut := func(e *End, d *via.Descriptor, base int) []byte {
		d.Prepare()
		cuts := make([]int, segments+1)
		for i := range cuts[1:segments] {
			cuts[i+1] = min(total, cuts[i]+r.IntN(2*total/segments))
		}
		cuts[segments] = total
		message := make([]byte, 0, total)
		for i := segments - 1; i >= 0; i-- {
			OK(w, e.Memory.AddTo(d, base+cuts[i], cuts[i+1]-cuts[i]))
			message = append(message, e.Memory.Bytes()[base+cuts[i]:base+cuts[i+1]]...)
		}
		return message
	}
	sent := cut(x, x.Send[0], 0)
	cut(y, y.Recv[0], 30000)
	OK(w, y.VI.PostRecv(y.Recv[0]))
	OK(w, x.VI.PostSend(x.Send[0]))
	d := w.MustTake(y.VI.RecvDone)
	w.MustTake(x.VI.SendDone)
	var got []byte
	for _, s := range d.Segments() {
		at := s.Address - y.Memory.Address()
		got = append(got, y.Memory.Bytes()[at:at+uint64(s.Length)]...)
	}
	if d.Length() != total || !bytes.Equal(got, sent) {
		w.Errorf("%d bytes arrived, or changed", d.Length())
	}
}

// testOrder posts more sends than receives: the sender stalls and nothing is
// lost or swapped.
func testOrder(w *World) {
	const messages, size = 300, 700
	x, y := w.Connect(Setup{})
	sent, received, taken := 0, 0, 0
	w.Until("all messages", func() bool {
		for sent < messages && sent-taken < len(x.Send) {
			d := x.Prepare(w, x.Send[sent%len(x.Send)], 0, sent%size)
			d.SetImmediate(uint32(sent))
			OK(w, x.VI.PostSend(d))
			sent++
		}
		// One receive at a time: each message waits for it.
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[received%len(y.Recv)], 0, size)))
		d := w.MustTake(y.VI.RecvDone)
		if v, _ := d.Immediate(); v != uint32(received) || int(d.Length()) != received%size {
			w.Fatalf("message %d with %d bytes arrived as number %d", v, d.Length(), received)
		}
		received++
		for {
			if _, err := x.VI.SendDone(); err != nil {
				break
			}
			taken++
		}
		return received == messages
	})
	if taken > received {
		w.Errorf("%d sends completed, %d messages received", taken, received)
	}
}
