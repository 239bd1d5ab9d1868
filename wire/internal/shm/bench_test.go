package shm_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// header is what frames carry beside their payload.
const header = datasheet.HeaderSize

// two starts a worker in a process and one in this, which is pinned to the first
// processor.
func two(b *testing.B, o shm.Options, what task) *worker {
	b.Helper()
	o.Path, o.Role = socket(b), shm.RoleListen
	p := open(b, o)
	what.Path, what.Role, what.MTU, what.Ring, what.Share = o.Path, shm.RoleConnect, o.MTU, o.Ring, o.Share
	c := spawn(b, what)
	c.line()
	up(b, p)
	unpin := pin(0)
	b.Cleanup(func() {
		unpin()
		c.finish()
	})
	return &worker{p, context.Background(), what}
}

// laps are the times of some hundred turns each. On a machine that does other
// things too, the mean of all says little.
type laps struct {
	turns, done int
	start       time.Time
	times       []time.Duration
}

func newLaps(turns int) *laps {
	return &laps{turns: turns, start: time.Now(), times: make([]time.Duration, 0, 1<<16)}
}

func (l *laps) next() {
	if l.done++; l.done == l.turns {
		now := time.Now()
		l.times = append(l.times, now.Sub(l.start))
		l.start, l.done = now, 0
	}
}

// report reports the time of one of so many parts of a turn: of the best lap,
// the best tenth, and the median.
func (l *laps) report(b *testing.B, parts int, unit string) {
	b.ReportMetric(0, "ns/op")
	if len(l.times) == 0 {
		return
	}
	slices.Sort(l.times)
	for _, m := range []struct {
		name string
		at   int
	}{{"best", 0}, {"p10", len(l.times) / 10}, {"p50", len(l.times) / 2}} {
		b.ReportMetric(float64(l.times[m.at].Nanoseconds())/float64(l.turns*parts), m.name+"-ns/"+unit)
	}
}

// BenchmarkPingPong measures half of a round trip between two processes. The
// bytes are copied in at one side and out at the other.
func BenchmarkPingPong(b *testing.B) {
	for _, bench := range []struct{ size, mtu, piece int }{
		{64, 0, 0}, {256, 0, 0}, {1 << 10, 0, 0}, {4 << 10, 0, 0}, {8 << 10, 0, 0},
		{4 << 10, 0, 1 << 10}, {8 << 10, 0, 2 << 10}, {8 << 10, 0, 4 << 10},
		{datasheet.MaxMTU - header, datasheet.MaxMTU, 0},
		{datasheet.MaxMTU - header, datasheet.MaxMTU, 4 << 10},
		{datasheet.MaxMTU - header, datasheet.MaxMTU, 8 << 10},
		{datasheet.MaxMTU - header, datasheet.MaxMTU, 16 << 10},
	} {
		name := fmt.Sprintf("%d", bench.size)
		if bench.piece > 0 {
			name += fmt.Sprintf("/piece%d", bench.piece)
		}
		b.Run(name, func(b *testing.B) {
			w := two(b, shm.Options{MTU: bench.mtu}, task{Do: "echo", Size: bench.size, Piece: bench.piece, CPU: 1})
			frame, buf := make([]byte, header+bench.size), make([]byte, 1<<17)
			laps := newLaps(200)
			for b.Loop() {
				w.send(frame)
				w.receive(buf)
				laps.next()
			}
			laps.report(b, 2, "way")
		})
	}
}

// BenchmarkMessage measures one way of 64 KiB, in frames of several sizes, whole
// and in parts, and the way back of a small answer.
func BenchmarkMessage(b *testing.B) {
	const size = 64 << 10
	for _, bench := range []struct{ payload, piece int }{
		{4 << 10, 0}, {8 << 10, 0}, {16 << 10, 0}, {32 << 10, 0}, {16 << 10, 4 << 10}, {32 << 10, 8 << 10},
		{size - 256, 0}, {size - 256, 8 << 10}, {size - 256, 16 << 10},
	} {
		b.Run(fmt.Sprintf("%d/piece%d", bench.payload, bench.piece), func(b *testing.B) {
			w := two(b, shm.Options{MTU: header + bench.payload}, task{Do: "sink", Piece: bench.piece, CPU: 1})
			frame, buf := make([]byte, header+bench.payload), make([]byte, 1<<17)
			laps := newLaps(50)
			for b.Loop() {
				frame[0] = 0
				for range size/bench.payload - 1 {
					w.send(frame)
				}
				frame[0] = 1
				w.send(frame)
				w.receive(buf)
				laps.next()
			}
			laps.report(b, 1, "message")
		})
	}
}

// BenchmarkLend is BenchmarkPingPong with bytes that are lent: they are copied
// once, by who receives them.
func BenchmarkLend(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 8 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := two(b, shm.Options{Share: true}, task{Do: "lend", Size: size, CPU: 1})
			mem, unmap, err := w.export(size)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(unmap)
			into := make([]byte, size)
			laps := newLaps(100)
			for b.Loop() {
				mem[0]++
				if !w.sendLent(mem) || !w.copyLent(into) {
					b.Fatal("the peer is gone")
				}
				laps.next()
			}
			laps.report(b, 2, "way")
		})
	}
}

// BenchmarkStream measures one direction, with an answer to every 512th frame.
func BenchmarkStream(b *testing.B) {
	for _, bench := range []struct{ size, mtu, piece, batch int }{
		{64, 0, 0, 1}, {64, 0, 0, 16}, {1 << 10, 0, 0, 1}, {4 << 10, 0, 0, 1}, {8 << 10, 0, 0, 1},
		{datasheet.MaxMTU - header, datasheet.MaxMTU, 0, 1},
		{datasheet.MaxMTU - header, datasheet.MaxMTU, 8 << 10, 1},
	} {
		name := fmt.Sprintf("%d/batch%d", bench.size, bench.batch)
		if bench.piece > 0 {
			name += fmt.Sprintf("/piece%d", bench.piece)
		}
		b.Run(name, func(b *testing.B) {
			w := two(b, shm.Options{MTU: bench.mtu}, task{Do: "sink", Size: bench.size, Piece: bench.piece, CPU: 1})
			frame, buf := make([]byte, header+bench.size), make([]byte, 1<<17)
			const every = 512
			i, laps := 0, newLaps(every)
			for b.Loop() {
				i++
				frame[0] = 0
				if i%every == 0 {
					frame[0] = 1
				}
				w.fill(w.space(len(frame)), frame)
				if i%bench.batch == 0 || frame[0] == 1 {
					w.p.Flush()
				}
				if frame[0] == 1 {
					w.receive(buf)
				}
				laps.next()
			}
			laps.report(b, 1, "frame")
		})
	}
}

// BenchmarkFrame is the processor time of a frame of 128 bytes at both ends,
// which share a processor and its caches.
func BenchmarkFrame(b *testing.B) {
	x, y := pair(b, shm.Options{})
	b.Run("frame", func(b *testing.B) {
		for b.Loop() {
			x.Reserve(128)
			x.Commit()
			x.Flush()
			y.Receive()
			y.Release()
		}
	})
	b.Run("idle look", func(b *testing.B) {
		for b.Loop() {
			y.Receive()
		}
	})
}

// BenchmarkWake measures a round trip with a process that sleeps until a frame
// comes: nearly all of it is the time to wake up.
func BenchmarkWake(b *testing.B) {
	w := two(b, shm.Options{}, task{Do: "sleep", CPU: -1})
	frame, buf := make([]byte, 2*header), make([]byte, 1<<17)
	times := newLaps(1)
	for b.Loop() {
		time.Sleep(2 * time.Millisecond) // until it sleeps
		times.start = time.Now()
		w.send(frame)
		w.receive(buf)
		times.next()
	}
	times.report(b, 1, "wake")
}
