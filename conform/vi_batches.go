package conform

import (
	"bytes"
	"slices"

	"github.com/trapeze-nic/trapeze/via"
)

func testBatches(w *World) {
	x, y := w.Connect(Setup{})
	const n = 16
	for round := range 5 {
		for i := range n {
			y.Prepare(w, y.Recv[i], i*64, 64)
			x.Prepare(w, x.Send[i], i*64, 64)
		}
		pattern(x.Memory.Bytes()[:n*64], uint64(round))
		if got, err := y.VI.PostRecvBatch(y.Recv[:n]); got != n || err != nil {
			w.Fatal(got, err)
		}
		if got, err := x.VI.PostSendBatch(x.Send[:n]); got != n || err != nil {
			w.Fatal(got, err)
		}
		for i := range n {
			if d := w.MustTake(y.VI.RecvDone); d != y.Recv[i] {
				w.Fatalf("receive %d completed out of order", i)
			}
			if d := w.MustTake(x.VI.SendDone); d != x.Send[i] {
				w.Fatalf("send %d completed out of order", i)
			}
		}
		if !bytes.Equal(x.Memory.Bytes()[:n*64], y.Memory.Bytes()[:n*64]) {
			w.Fatal("messages arrived changed")
		}
	}
	if got, err := x.VI.PostSendBatch(nil); got != 0 || err != nil {
		w.Errorf("empty batch: %d, %v", got, err)
	}
}

// testBatchesWrap fills queues whose depth is no power of two again and again: they
// take what they hold, and no more.
func testBatchesWrap(w *World) {
	const depth = 5
	x, y := w.Connect(Setup{Attributes: via.VIAttributes{SendDepth: depth, RecvDepth: depth}})
	all := map[*End][2][]*via.Descriptor{}
	for _, e := range []*End{x, y} {
		more := Must(e.VI.NewDescriptors(Context(w), 2, 1))(w)
		all[e] = [2][]*via.Descriptor{append(e.Send[:depth:depth], more[0]), append(e.Recv[:depth:depth], more[1])}
	}
	for round := range 7 {
		pattern(x.Memory.Bytes()[:64*depth], uint64(round))
		for i := range depth + 1 {
			x.Prepare(w, all[x][0][i], i*64, 64)
			y.Prepare(w, all[y][1][i], i*64, 64)
		}
		n, err := y.VI.PostRecvBatch(all[y][1])
		wantError(w, "receives", err, via.ErrQueueFull)
		if n != depth {
			w.Errorf("%d receives were posted, want %d", n, depth)
		}
		n, err = x.VI.PostSendBatch(all[x][0])
		wantError(w, "sends", err, via.ErrQueueFull)
		if n != depth {
			w.Errorf("%d sends were posted, want %d", n, depth)
		}
		wantError(w, "send", x.VI.PostSend(all[x][0][depth]), via.ErrQueueFull)
		for i := range depth {
			if w.MustTake(x.VI.SendDone) != all[x][0][i] || w.MustTake(y.VI.RecvDone) != all[y][1][i] {
				w.Fatalf("message %d completed out of order", i)
			}
		}
		if !bytes.Equal(x.Memory.Bytes()[:64*depth], y.Memory.Bytes()[:64*depth]) {
			w.Fatal("messages arrived changed")
		}
		_, err = x.VI.SendDone()
		wantError(w, "after the last", err, via.ErrQueueEmpty)
	}
}

// testBatchesDone takes messages back in batches of a size that does not divide
// their number.
func testBatchesDone(w *World) {
	x, y := w.Connect(Setup{})
	const n, most = 16, 5
	for i := range n {
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[i], i*64, 64)))
		OK(w, x.VI.PostSend(x.Prepare(w, x.Send[i], i*64, 64)))
	}
	for _, q := range []struct {
		name string
		done func([]*via.Descriptor) (int, error)
		want []*via.Descriptor
	}{{"send", x.VI.SendDoneBatch, x.Send[:n]}, {"receive", y.VI.RecvDoneBatch, y.Recv[:n]}} {
		if got, err := q.done(nil); got != 0 || err != nil {
			w.Errorf("%s: a batch of nothing: %d, %v", q.name, got, err)
		}
		var all []*via.Descriptor
		w.Until(q.name+"s to complete", func() bool {
			into := make([]*via.Descriptor, most)
			got, err := q.done(into)
			if err != nil && (err != via.ErrNotDone || got != 0) {
				w.Fatalf("%s: %d, %v", q.name, got, err)
			}
			all = append(all, into[:got]...)
			return len(all) >= n
		})
		if !slices.Equal(all, q.want) {
			w.Errorf("%s: %d descriptors came back, or in another order", q.name, len(all))
		}
		got, err := q.done(make([]*via.Descriptor, 1))
		wantError(w, q.name+" from an empty queue", err, via.ErrQueueEmpty, via.ErrDescriptor)
		if got != 0 {
			w.Errorf("%s: %d from an empty queue", q.name, got)
		}
	}

	// One that fails comes alone, after those before it and before those behind it.
	for i, length := range []int{64, 64, 32, 64} {
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[i], i*64, length)))
	}
	for i := range 3 {
		OK(w, x.VI.PostSend(x.Prepare(w, x.Send[i], 0, 64)))
	}
	w.Until("all receives to complete", func() bool {
		return y.Recv[0].Status().Done() && y.Recv[1].Status().Done() && y.Recv[2].Status().Done()
	})
	into := make([]*via.Descriptor, 4)
	if got, err := y.VI.RecvDoneBatch(into); got != 2 || err != nil || into[0] != y.Recv[0] || into[1] != y.Recv[1] {
		w.Errorf("before the one that failed: %d, %v", got, err)
	}
	got, err := y.VI.RecvDoneBatch(into)
	wantStatus(w, "message that is too long", into[0], err, via.StatusLengthError)
	if got != 1 || into[0] != y.Recv[2] {
		w.Errorf("the one that failed: %d", got)
	}
}
