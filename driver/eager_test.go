package driver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

var (
	written = driver.EagerAttributes{Mode: driver.EagerWritten}
	atPost  = driver.EagerAttributes{Mode: driver.EagerAtPost}
)

func counter(tb testing.TB, n *driver.NIC, c datasheet.Counter) uint64 {
	tb.Helper()
	all, err := n.Counters()
	if err != nil {
		tb.Fatal(err)
	}
	return all[c.String()]
}

// TestEagerMessages: messages in eager memory arrive as they are at the post, and nothing of
// them is read from host memory.
func TestEagerMessages(t *testing.T) {
	for name, eager := range map[string]driver.EagerAttributes{"written": written, "at post": atPost,
		"wide": {Mode: driver.EagerWritten, Wide: true}} {
		t.Run(name, func(t *testing.T) {
			r := newPingRigIn(t, false, eager)
			if !r.memory.IsEager() {
				t.Fatal("the memory is ordinary")
			}
			at := descriptors.DescriptorBytes(1)
			for i := range byte(20) {
				text := bytes.Repeat([]byte{'a' + i}, 64)
				if eager.Mode == driver.EagerWritten {
					if _, err := r.memory.Eager().WriteAt(text, int64(at)); err != nil {
						t.Fatal(err)
					}
				} else {
					copy(r.memory.Bytes()[at:], text)
				}
				if err := r.once(); err != nil {
					t.Fatal(err)
				}
				got := r.received()
				if !bytes.Equal(got, text) {
					t.Fatalf("message %d is %q", i, got)
				}
			}
			if n := counter(t, r.nic, datasheet.CounterEagerReads); n != 0 {
				t.Errorf("%d blocks were read from host memory", n)
			}
			if n := counter(t, r.nic, datasheet.CounterEagerBlocks); n == 0 {
				t.Error("no block was taken from the device")
			}
			if s := r.nic.EagerCounts(); s.Pushed == 0 || s.FellBack != 0 {
				t.Errorf("%+v", s)
			}
			if free, _, err := r.nic.FreeSRAM(); err != nil || free >= r.nic.Identity().SRAM {
				t.Errorf("%d bytes are free, %v", free, err)
			}
		})
	}
}

// TestEagerAllocatesNothing: neither messages nor writing do.
func TestEagerAllocatesNothing(t *testing.T) {
	r := newPingRigIn(t, false, written)
	w, at := r.memory.Eager(), descriptors.DescriptorBytes(1)
	text := make([]byte, 64)
	var failed error
	once := func() {
		_, err := w.WriteAt(text, int64(at))
		if err := errors.Join(err, w.Store32(at+8, 7), w.Push(at, 64), r.once()); err != nil && failed == nil {
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
						if n, err := w.WriteAt(p, int64(at+o)); n != len(p) || err != nil {
							t.Fatal(n, err)
						}
					},
					"store": func(t *rapid.T) {
						v := rapid.Uint64().Draw(t, "value")
						o := at + rapid.IntRange(0, len(buf)-8).Draw(t, "offset")
						err := errors.Join(w.Store64(o, v), w.Store8(o+1, uint8(v>>8)), w.Store16(o, uint16(v)), w.Store32(o+4, uint32(v>>32)))
						if err != nil {
							t.Fatal(err)
						}
					},
					"around": func(t *rapid.T) {
						o := rapid.IntRange(0, len(buf)-8).Draw(t, "offset")
						copy(buf[o:], "changed!")
						if err := w.Push(at+o, 8); err != nil {
							t.Fatal(err)
						}
					},
					"flush": func(t *rapid.T) {
						if err := w.Flush(); err != nil {
							t.Fatal(err)
						}
					},
					"send": func(t *rapid.T) {
						if err := r.once(); err != nil {
							t.Fatal(err)
						}
						want = append(want[:0], buf[:64]...)
						if got := r.received(); !bytes.Equal(got, want) {
							t.Fatalf("%q arrived, it is %q", got, want)
						}
					},
				})
			})
		})
	}
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
			if err := w.Store64(1024+64*b+8*i, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
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
	m, err := r.nic.Alloc(ctx, 1000, driver.MemoryAttributes{Ptag: p, Eager: written})
	if err != nil {
		t.Fatal(err)
	}
	w := m.Eager()
	outside := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, descriptors.ErrInvalidParameter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = w.WriteAt(make([]byte, 2), 999)
	outside("beyond the end", err)
	_, err = w.WriteAt(make([]byte, 2), -1)
	outside("before the first byte", err)
	outside("push", w.Push(900, 101))
	outside("push of less than nothing", w.Push(900, -1))
	outside("store", w.Store64(993, 1))
	w.Rewind(1001)
	_, err = w.Write(nil)
	outside("write", err)
	w.Rewind(0)
	if n, err := w.Write(make([]byte, 1000)); n != 1000 || err != nil {
		t.Fatal(n, err)
	}
	_, err = w.Write([]byte{1})
	outside("full", err)

	// Deregistered while two goroutines write.
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for {
				if _, err := w.WriteAt([]byte("still here"), 500); err != nil {
					if !errors.Is(err, descriptors.ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	time.Sleep(time.Millisecond)
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	both.Wait()
	for name, err := range map[string]error{"store": w.Store8(0, 1), "push": w.Push(0, 1), "flush": w.Flush(), "ordinary": m.Eager().Store8(0, 1)} {
		if !errors.Is(err, descriptors.ErrClosed) {
			t.Errorf("%s after deregistration: %v", name, err)
		}
	}
}

// TestEagerNoRoom: who registers more than the device has memory for gets what it asked for.
func TestEagerNoRoom(t *testing.T) {
	r := newPingRigIn(t, false, written)
	ctx := contextFor(t)
	attributes := func(room driver.NoRoom) driver.MemoryAttributes {
		return driver.MemoryAttributes{Ptag: r.memory.Attributes().Ptag, Eager: driver.EagerAttributes{Mode: driver.EagerWritten, NoRoom: room}}
	}
	free, _, err := r.nic.FreeSRAM()
	if err != nil {
		t.Fatal(err)
	}
	most, err := r.nic.Alloc(ctx, int(free)/4*3, attributes(driver.NoRoomFails))
	if err != nil {
		t.Fatal(err)
	}
	half := int(free) / 2
	if _, err := r.nic.Alloc(ctx, half, attributes(driver.NoRoomFails)); !errors.Is(err, descriptors.ErrResource) {
		t.Errorf("no room: %v", err)
	}
	m, err := r.nic.Alloc(ctx, half, attributes(driver.NoRoomOrdinary))
	if err != nil || m.IsEager() || r.nic.EagerCounts().FellBack != 1 {
		t.Fatalf("no room, ordinary: %v, %+v", err, r.nic.EagerCounts())
	}
	if n, err := m.Eager().Write([]byte("the writer stores")); err != nil || string(m.Bytes()[:n]) != "the writer stores" {
		t.Errorf("%q, %v", m.Bytes()[:n], err)
	}
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	if _, err := r.nic.Alloc(short, half, attributes(driver.NoRoomWaits)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting in vain: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		m, err := r.nic.Alloc(ctx, half, attributes(driver.NoRoomWaits))
		if err == nil && !m.IsEager() {
			err = errors.New("it is ordinary")
		}
		got <- err
	}()
	time.Sleep(5 * time.Millisecond)
	if err := errors.Join(most.Close(ctx), <-got); err != nil {
		t.Errorf("waiting: %v", err)
	}
	// On a busy machine those that wait may have had no time to ask in vain.
	if n := counter(t, r.nic, datasheet.CounterEagerRefused); n < 2 {
		t.Errorf("%d registrations refused", n)
	}
}

// received is the text of the message that r.once brought.
func (r *pingRig) received() []byte { return r.inbox.Bytes()[descriptors.DescriptorBytes(1):][:64] }

func BenchmarkEagerPush(b *testing.B) {
	for name, size := range map[string]int{"64": 64, "4096": 4096 - 128} {
		b.Run(name, func(b *testing.B) {
			r := newPingRigIn(b, false, written)
			w := r.memory.Eager()
			b.SetBytes(int64(size))
			for b.Loop() {
				if err := w.Push(128, size); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEagerMessage is the time of a message, post to completion, in ordinary memory, in
// the descriptor, and in eager memory that the post pushes, or that its writer has pushed. Of
// the last the writing, of the whole message, counts too, as it does for the descriptor.
func BenchmarkEagerMessage(b *testing.B) {
	for _, size := range []int{64, 256, 1024, 4096} {
		for name, eager := range map[string]driver.EagerAttributes{"ordinary": {}, "inline": {}, "post": atPost, "written": written} {
			if name == "inline" && size > 1024 {
				continue // more than a descriptor takes
			}
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				r := newPingRigIn(b, false, eager)
				r.resize(b, size, name == "inline", eager)
				text := make([]byte, size)
				at := descriptors.DescriptorBytes(1)
				for b.Loop() {
					var err error
					switch name {
					case "inline":
						copy(r.send.Inline(), text)
					case "written":
						_, err = r.memory.Eager().WriteAt(text, int64(at))
					default:
						copy(r.memory.Bytes()[at:], text)
					}
					if err := errors.Join(err, r.once()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// resize has r send messages of size bytes, inline or from eager memory.
func (r *pingRig) resize(tb testing.TB, size int, inline bool, eager driver.EagerAttributes) {
	tb.Helper()
	for _, end := range []struct {
		n *driver.NIC
		m **driver.Memory
		d **descriptors.Descriptor
	}{{r.nic, &r.memory, &r.send}, {r.peer, &r.inbox, &r.recv}} {
		m, err := end.n.Alloc(contextFor(tb), 2*4096, driver.MemoryAttributes{Ptag: (*end.m).Attributes().Ptag, Eager: eager})
		if err != nil {
			tb.Fatal(err)
		}
		*end.m = m
		if inline && end.d == &r.send {
			segments := (size + datasheet.DataSegmentSize - 1) / datasheet.DataSegmentSize
			d, err := descriptors.NewDescriptor(m.Bytes()[:descriptors.DescriptorBytes(segments)], m.Address(), m.Handle())
			if err == nil {
				err = d.SetInline(size)
			}
			if err != nil {
				tb.Fatal(err)
			}
			*end.d = d
			continue
		}
		*end.d = descriptor(tb, m, 0, size)
	}
}
