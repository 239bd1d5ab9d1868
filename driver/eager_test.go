package driver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

var written = driver.EagerAttributes{Mode: driver.EagerWritten}

func counter(tb testing.TB, n *driver.NIC, c datasheet.Counter) uint64 {
	tb.Helper()
	all := must.Get(n.Counters())(tb)
	return all[c.String()]
}

// TestEagerAllocatesNothing: neither messages nor writing do.
func TestEagerAllocatesNothing(t *testing.T) {
	r := newPingRigIn(t, false, written)
	w, at := r.memory.Eager(), descriptors.DescriptorBytes(1)
	text := make([]byte, 64)
	var failed error
	once := func() {
		_, err := w.WriteAt(text, int64(at))
		_, short := w.WriteAt(text[:4], int64(at+8))
		if err := errors.Join(err, short, w.Push(at, 64), r.once()); err != nil && failed == nil {
			failed = err
		}
	}
	once()
	if allocs := testing.AllocsPerRun(1000, once); allocs != 0 || failed != nil {
		t.Errorf("%v allocations a message, %v", allocs, failed)
	}
}

// TestEagerWriterModel writes at random through a writer and around it, and sends. The device
// has what a writer wrote, whatever was pushed when, and else what was pushed last.
func TestEagerWriterModel(t *testing.T) {
	for name, eager := range map[string]driver.EagerAttributes{"64": written, "128": {Mode: driver.EagerWritten, Wide: true}} {
		t.Run(name, func(t *testing.T) {
			r := newPingRigIn(t, false, eager)
			at := descriptors.DescriptorBytes(1)
			w := r.memory.Eager()
			buf := r.memory.Bytes()[at:]
			rapid.Check(t, func(t *rapid.T) {
				want := append([]byte(nil), buf[:64]...)
				t.Repeat(map[string]func(*rapid.T){
					"write": func(t *rapid.T) {
						p := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")
						o := rapid.IntRange(0, len(buf)-len(p)).Draw(t, "offset")
						must.Give(w.WriteAt(p, int64(at+o)))(t, len(p))
					},
					"store": func(t *rapid.T) {
						v := rapid.Uint64().Draw(t, "value")
						o := at + rapid.IntRange(0, len(buf)-8).Draw(t, "offset")
						must.OK(t, errors.Join(store(w, o, 8, v), store(w, o+1, 1, v>>8), store(w, o, 2, v), store(w, o+4, 4, v>>32)))
					},
					"around": func(t *rapid.T) {
						o := rapid.IntRange(0, len(buf)-8).Draw(t, "offset")
						copy(buf[o:], "changed!")
						must.OK(t, w.Push(at+o, 8))
					},
					"flush": func(t *rapid.T) {
						must.OK(t, w.Flush())
					},
					"send": func(t *rapid.T) {
						must.OK(t, r.once())
						want = append(want[:0], buf[:64]...)
						must.Same(t, r.received(), want, "arrived")
					},
				})
			})
		})
	}
}

// store writes the lower bytes of v, little-endian.
func store(w *driver.Eager, offset, bytes int, v uint64) error {
	_, err := w.WriteAt(binary.LittleEndian.AppendUint64(nil, v)[:bytes], int64(offset))
	return err
}

// TestEagerRewritten: what is written again after a push is taken back, and counted.
func TestEagerRewritten(t *testing.T) {
	r := newPingRigIn(t, false, written)
	w := r.memory.Eager()
	before := r.nic.EagerCounts()
	// A stride of one block: every word takes the block back that was pushed with the last.
	const blocks, words = 8, 4
	for i := range words {
		for b := range blocks {
			must.OK(t, store(w, 1024+64*b+8*i, 8, 1))
		}
	}
	must.OK(t, w.Flush())
	s := r.nic.EagerCounts()
	if pushed, again := s.Pushed-before.Pushed, s.Again-before.Again; pushed != blocks*words || again != blocks*(words-1) {
		t.Errorf("%d blocks pushed, %d again", pushed, again)
	}
}

// TestEagerMisuse: a writer keeps to its memory, and ends with it.
func TestEagerMisuse(t *testing.T) {
	r := newPingRigIn(t, false, written)
	ctx := contextFor(t)
	p := r.memory.Attributes().Ptag
	m := must.Get(r.nic.Alloc(ctx, 1000, driver.MemoryAttributes{Ptag: p, Eager: written}))(t)
	w := m.Eager()
	for name, at := range map[string]struct{ offset, bytes int }{"beyond the end": {999, 2}, "before the first byte": {-1, 2}, "nothing, beyond the end": {1001, 0}} {
		should.Refuse(w.WriteAt(make([]byte, at.bytes), int64(at.offset)))(t, descriptors.ErrInvalidParameter, "%s", name)
	}
	should.Fail(t, w.Push(900, 101), descriptors.ErrInvalidParameter, "push")
	should.Fail(t, w.Push(900, -1), descriptors.ErrInvalidParameter, "push of less than nothing")
	must.Give(w.WriteAt(make([]byte, 1000), 0))(t, 1000)

	// Deregistered while two goroutines write.
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for {
				if _, err := w.WriteAt([]byte("still here"), 500); err != nil {
					should.Fail(t, err, descriptors.ErrClosed)
					return
				}
			}
		})
	}
	time.Sleep(time.Millisecond)
	must.OK(t, m.Close(ctx))
	both.Wait()
	for name, err := range map[string]error{"store": store(w, 0, 1, 1), "push": w.Push(0, 1), "flush": w.Flush(), "ordinary": store(m.Eager(), 0, 1, 1)} {
		should.Fail(t, err, descriptors.ErrClosed, "%s after deregistration", name)
	}
}

// TestEagerNoRoom: who registers more than the device has memory for gets what it asked for.
func TestEagerNoRoom(t *testing.T) {
	r := newPingRigIn(t, false, written)
	ctx := contextFor(t)
	attributes := func(room driver.NoRoom) driver.MemoryAttributes {
		return driver.MemoryAttributes{Ptag: r.memory.Attributes().Ptag, Eager: driver.EagerAttributes{Mode: driver.EagerWritten, NoRoom: room}}
	}
	free, _ := must.Two(r.nic.FreeSRAM())(t)
	most := must.Get(r.nic.Alloc(ctx, int(free)/4*3, attributes(driver.NoRoomFails)))(t)
	half := int(free) / 2
	should.Refuse(r.nic.Alloc(ctx, half, attributes(driver.NoRoomFails)))(t, descriptors.ErrResource, "no room")
	m, err := r.nic.Alloc(ctx, half, attributes(driver.NoRoomOrdinary))
	if err != nil || m.IsEager() || r.nic.EagerCounts().FellBack != 1 {
		t.Fatalf("no room, ordinary: %v, %+v", err, r.nic.EagerCounts())
	}
	if n, err := m.Eager().WriteAt([]byte("the writer stores"), 0); err != nil || string(m.Bytes()[:n]) != "the writer stores" {
		t.Errorf("%q, %v", m.Bytes()[:n], err)
	}
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	should.Refuse(r.nic.Alloc(short, half, attributes(driver.NoRoomWaits)))(t, context.DeadlineExceeded, "waiting in vain")
	got := make(chan error, 1)
	go func() {
		m, err := r.nic.Alloc(ctx, half, attributes(driver.NoRoomWaits))
		if err == nil && !m.IsEager() {
			err = errors.New("it is ordinary")
		}
		got <- err
	}()
	time.Sleep(5 * time.Millisecond)
	should.OK(t, errors.Join(most.Close(ctx), <-got))
	// On a busy machine those that wait may have had no time to ask in vain.
	if n := counter(t, r.nic, datasheet.CounterEagerRefused); n < 2 {
		t.Errorf("%d registrations refused", n)
	}
}

// received is the text of the message that r.once brought.
func (r *pingRig) received() []byte { return r.inbox.Bytes()[descriptors.DescriptorBytes(1):][:64] }
