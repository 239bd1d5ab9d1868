package virtqueue_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/virtqueuetest"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/virtqueue"
)

func TestLayout(t *testing.T) {
	for _, tt := range []struct {
		o  virtqueue.Options
		ok bool
	}{
		{virtqueue.Options{Size: 2}, true},
		{virtqueue.Options{Size: 256}, true},
		{virtqueue.Options{Size: virtqueue.MaxSize}, true},
		{virtqueue.Options{Size: 96, Format: virtqueue.Packed}, true},
		{virtqueue.Options{Size: 0}, false},
		{virtqueue.Options{Size: 1}, false},
		{virtqueue.Options{Size: -1}, false},
		{virtqueue.Options{Size: 96}, false},
		{virtqueue.Options{Size: 2 * virtqueue.MaxSize}, false},
		{virtqueue.Options{Size: 2 * virtqueue.MaxSize, Format: virtqueue.Packed}, false},
		{virtqueue.Options{Size: 64, Format: 2}, false},
	} {
		l, err := tt.o.Layout()
		should.Hold(t, tt.ok == (err == nil) && (err == nil || errors.Is(err, virtqueue.ErrOptions)), "%+v: %v", tt.o, err)
		if err == nil && (l.Driver < 16*uint64(tt.o.Size) || l.Device <= l.Driver || l.Size <= l.Device || l.Driver%16 != 0 || l.Device%4 != 0) {
			t.Errorf("%+v: %+v", tt.o, l)
		}
	}
	should.Refuse(virtqueue.New(make([]byte, 64), virtqueue.Options{Size: 64}))(t, virtqueue.ErrOptions, "too little memory")
}

// TestPages: nothing that a device reads or writes at once crosses the end of a page, wherever
// in a page the queue begins: behind an IOMMU the next page may be anywhere.
func TestPages(t *testing.T) {
	const page = 4096
	for _, format := range []virtqueue.Format{virtqueue.Split, virtqueue.Packed} {
		for size := 2; size <= 2048; size *= 2 {
			l := must.Get(virtqueue.Options{Size: size, Format: format}.Layout())(t)
			should.Be(t, l.Size%128, 0, "%v, %d: %d bytes, so the next queue begins in a cache line of this one", format, size, l.Size)
			n := uint64(size)
			// What areas are made of (virtio 1.3, "Split Virtqueues", "Packed Virtqueues").
			type item struct {
				name            string
				at, size, count uint64
			}
			items := []item{{"descriptor", l.Descriptor, 16, n}, {"driver's event", l.Driver, 4, 1}, {"device's event", l.Device, 4, 1}}
			if format == virtqueue.Split {
				items = []item{{"descriptor", l.Descriptor, 16, n}, {"available flags", l.Driver, 4, 1}, {"available", l.Driver + 4, 2, n},
					{"used event", l.Driver + 4 + 2*n, 2, 1}, {"used flags", l.Device, 4, 1}, {"used", l.Device + 4, 8, n},
					{"available event", l.Device + 4 + 8*n, 2, 1}}
			}
			for _, i := range items {
				for k := range i.count {
					for begin := uint64(0); begin < page; begin += 128 {
						at := begin + i.at + k*i.size
						must.Hold(t, at/page == (at+i.size-1)/page,
							"%v, %d descriptors, from %#x of a page: %s %d is at %#x", format, size, begin, i.name, k, at)
					}
				}
			}
		}
	}
}

// TestModel does what a driver and a device may do, in any order, and compares with a list.
func TestModel(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				size := rapid.SampledFrom([]int{2, 4, 8, 32}).Draw(rt, "size")
				if kind.format == virtqueue.Packed {
					size += rapid.IntRange(0, 3).Draw(rt, "more")
				}
				runModel(t, rt, virtqueue.Options{Format: kind.format, Size: size, EventIndex: kind.eventIndex})
			})
		})
	}
}

// model is what a queue must do.
type model struct {
	*rig
	size     int
	tag      uint32
	lent     map[uint32][]virtqueue.Part
	unseen   []uint32 // published, in order
	added    []uint32 // not published
	held     []virtqueuetest.Buffer
	heldTags []uint32
	used     []virtqueue.Used // not flushed
	back     []virtqueue.Used // flushed
}

const partSize = 64

func runModel(t *testing.T, rt *rapid.T, o virtqueue.Options) {
	m := &model{rig: newRig(t, o, 64<<10), size: o.Size, lent: map[uint32][]virtqueue.Part{}}
	rt.Repeat(map[string]func(*rapid.T){
		"add": func(rt *rapid.T) {
			parts := make([]virtqueue.Part, rapid.IntRange(1, 4).Draw(rt, "parts"))
			if m.Room() < len(parts) {
				rt.Skip("full")
			}
			readable := rapid.IntRange(0, len(parts)).Draw(rt, "readable")
			m.tag++
			for i := range parts {
				at := (int(m.tag)*4 + i) % (len(m.data) / partSize) * partSize
				parts[i] = virtqueue.Part{Address: base + uint64(at), Length: uint32(rapid.IntRange(1, partSize).Draw(rt, "length")), Writable: i >= readable}
			}
			if len(parts) == 1 && rapid.Bool().Draw(rt, "single") {
				m.Add(parts[0], m.tag)
			} else {
				m.AddChain(parts, m.tag)
			}
			m.lent[m.tag] = parts
			m.added = append(m.added, m.tag)
		},
		"publish": func(*rapid.T) {
			m.Publish()
			m.unseen = append(m.unseen, m.added...)
			m.added = nil
		},
		"next": func(rt *rapid.T) {
			b, ok, err := m.device.Next()
			must.Give(ok, err)(rt, len(m.unseen) > 0, "next; %d are published", len(m.unseen))
			if !ok {
				return
			}
			tag := m.unseen[0]
			m.unseen = m.unseen[1:]
			want := m.lent[tag]
			must.Be(rt, len(b.Parts), len(want), "parts")
			for i, p := range b.Parts {
				data, err := m.find(want[i].Address, want[i].Length)
				must.Hold(rt, err == nil && len(p.Data) == len(data) && &p.Data[0] == &data[0] && p.Writable == want[i].Writable,
					"part %d differs: %v", i, err)
			}
			m.held, m.heldTags = append(m.held, b), append(m.heldTags, tag)
		},
		"use": func(rt *rapid.T) {
			if len(m.held) == 0 {
				rt.Skip("nothing")
			}
			i := rapid.IntRange(0, len(m.held)-1).Draw(rt, "which")
			room := 0
			for _, p := range m.held[i].Parts {
				if p.Writable {
					room += len(p.Data)
				}
			}
			length := rapid.IntRange(0, room).Draw(rt, "written")
			m.device.Use(m.held[i], uint32(length))
			m.used = append(m.used, virtqueue.Used{Tag: m.heldTags[i], Length: uint32(length)})
			m.held, m.heldTags = slices.Delete(m.held, i, i+1), slices.Delete(m.heldTags, i, i+1)
		},
		"flush": func(*rapid.T) {
			m.device.Flush()
			m.back = append(m.back, m.used...)
			m.used = nil
		},
		"take": func(rt *rapid.T) {
			must.Be(rt, m.Pending(), (len(m.back) > 0), "pending: %d are back", len(m.back))
			if m.Lent() > 0 && m.Near(1) != m.Pending() {
				rt.Fatalf("near: %v, %d are back", m.Near(1), len(m.back))
			}
			used := make([]virtqueue.Used, rapid.IntRange(1, 40).Draw(rt, "most"))
			n := m.Take(used)
			// What came after the queue looked last is seen by the next Take.
			must.Hold(rt, n <= len(m.back) && (n != 0 || len(m.back) == 0) && slices.Equal(used[:n], m.back[:n]),
				"took %v, want %v", used[:n], m.back)
			for _, u := range used[:n] {
				delete(m.lent, u.Tag)
			}
			m.back = m.back[n:]
		},
		"interrupts": func(rt *rapid.T) {
			wanted := rapid.Bool().Draw(rt, "wanted")
			must.Be(rt, m.Interrupts(wanted), (wanted && len(m.back) > 0), "interrupts: %d are back", len(m.back))
		},
		"": func(rt *rapid.T) {
			parts := 0
			for _, p := range m.lent {
				parts += len(p)
			}
			if m.Lent() != len(m.lent) || m.Room() != m.size-parts || m.Violation() != nil {
				rt.Fatalf("%d lent, room for %d, %v; want %d and %d", m.Lent(), m.Room(), m.Violation(), len(m.lent), m.size-parts)
			}
		},
	})
	var tags []uint32
	m.Reclaim(func(tag uint32) { tags = append(tags, tag) })
	for _, tag := range tags {
		delete(m.lent, tag)
	}
	must.Hold(rt, len(m.lent) == 0 && m.Lent() == 0 && m.Room() == 0, "%d buffers are not reclaimed, %d lent", len(m.lent), m.Lent())
}

// TestNotifications has both sides sleep whenever there is nothing to do, and wake each
// other only if asked: none may be forgotten.
func TestNotifications(t *testing.T) {
	for _, kind := range kinds {
		for _, size := range []int{2, 64} {
			t.Run(fmt.Sprintf("%s, %d", kind.name, size), func(t *testing.T) {
				r := newRig(t, virtqueue.Options{Format: kind.format, Size: size, EventIndex: kind.eventIndex}, size*partSize)
				exchange(t, r, size, 20000)
			})
		}
	}
}

// exchange sends frames numbers through the queue, each of which the device answers.
func exchange(t *testing.T, r *rig, size, frames int) {
	kick, call, failed := make(chan struct{}, 1), make(chan struct{}, 1), make(chan error, 1)
	signal := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	deadline := time.After(time.Minute)
	sleep := func(c chan struct{}) bool {
		select {
		case <-c:
			return true
		case <-deadline:
			return false
		}
	}
	stop := make(chan struct{})
	go func() { failed <- device(r, frames, signal, kick, call, stop) }()
	defer func() {
		close(stop)
		should.OK(t, <-failed)
	}()
	used := make([]virtqueue.Used, size)
	busy := make([]bool, size)
	sent := 0
	for taken := 0; taken < frames; {
		for i := range busy {
			if busy[i] || sent == frames || r.Room() == 0 {
				continue
			}
			binary.LittleEndian.PutUint64(r.data[i*partSize:], uint64(sent))
			r.Add(virtqueue.Part{Address: base + uint64(i*partSize), Length: partSize, Writable: true}, uint32(i))
			busy[i] = true
			sent++
		}
		if r.Publish() {
			signal(kick)
		}
		n := r.Take(used)
		if n == 0 {
			must.Hold(t, r.Interrupts(true) || sleep(call), "nobody woke the driver: %d of %d, %v", taken, frames, r.Violation())
			r.Interrupts(false)
		}
		for _, u := range used[:n] {
			at := int(u.Tag) * partSize
			first, second := binary.LittleEndian.Uint64(r.data[at:]), binary.LittleEndian.Uint64(r.data[at+8:])
			must.Hold(t, second == ^first && u.Length == 16, "buffer %d: %#x, %#x, %d bytes", u.Tag, first, second, u.Length)
			busy[u.Tag] = false
		}
		taken += n
	}
	must.OK(t, r.Violation())
}

// device answers frames, some at a time, until stop.
func device(r *rig, frames int, signal func(chan struct{}), kick, call, stop chan struct{}) error {
	for done := 0; done < frames; {
		b, ok, err := r.device.Next()
		if err != nil {
			return err
		}
		if ok {
			v := binary.LittleEndian.Uint64(b.Parts[0].Data)
			binary.LittleEndian.PutUint64(b.Parts[0].Data[8:], ^v)
			r.device.Use(b, 16)
			if done++; done%3 != 0 {
				continue
			}
		}
		if r.device.Flush() {
			signal(call)
		}
		if !ok && !r.device.Notifications(true) {
			select {
			case <-kick:
			case <-stop:
				return nil
			}
			r.device.Notifications(false)
		}
	}
	if r.device.Flush() {
		signal(call)
	}
	return nil
}

func TestNoAllocation(t *testing.T) {
	for _, kind := range kinds {
		r := newRig(t, virtqueue.Options{Format: kind.format, Size: 64, EventIndex: kind.eventIndex}, 64*partSize)
		used := make([]virtqueue.Used, 8)
		for round := range 100 {
			must.Be(t, testing.AllocsPerRun(1, func() {
				for i := range 3 {
					r.Add(virtqueue.Part{Address: base, Length: partSize, Writable: true}, uint32(i))
				}
				r.Publish()
				r.Take(used)
			}), 0, "%s: allocations in round %d", kind.name, round)
			for b, ok, _ := r.device.Next(); ok; b, ok, _ = r.device.Next() {
				r.device.Use(b, 1)
			}
			r.device.Flush()
			r.Take(used)
		}
	}
}

// BenchmarkRoundTrip is the work of both sides for a buffer, in batches of 32.
func BenchmarkRoundTrip(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) {
			r := newRig(b, virtqueue.Options{Format: kind.format, Size: 256, EventIndex: kind.eventIndex}, 256*partSize)
			used := make([]virtqueue.Used, 32)
			held := make([]virtqueuetest.Buffer, 0, 32)
			b.ReportAllocs()
			for range b.N / 32 {
				for i := range used {
					r.Add(virtqueue.Part{Address: base, Length: partSize, Writable: true}, uint32(i))
				}
				r.Publish()
				for range used {
					f, _, _ := r.device.Next()
					held = append(held, f)
				}
				for _, f := range held {
					r.device.Use(f, 1)
				}
				held = held[:0]
				r.device.Flush()
				must.Be(b, r.Take(used), 32, "%v", r.Violation())
			}
		})
	}
}
