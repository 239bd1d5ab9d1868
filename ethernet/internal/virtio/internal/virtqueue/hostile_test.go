package virtqueue_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/virtqueue"
)

// lend adds n buffers of 64 bytes, tagged from 100 on, and publishes them.
func lend(r *rig, n int, writable bool) {
	for i := range n {
		r.Add(virtqueue.Part{Address: base + uint64(i*partSize), Length: partSize, Writable: writable}, uint32(100+i))
	}
	r.Publish()
}

// wantViolation takes buffers until the queue says that the device broke the rules, and
// that it then gives nothing more.
func wantViolation(t *testing.T, r *rig, field string, good int) {
	t.Helper()
	used := make([]virtqueue.Used, 16)
	got := 0
	for range 4 {
		got += r.Take(used)
	}
	err := r.Violation()
	var v *virtqueue.Violation
	if got != good || !errors.As(err, &v) || !errors.Is(err, virtqueue.ErrViolation) || v.Field != field || v.Queue != 7 || !strings.Contains(err.Error(), field) {
		t.Errorf("%d buffers, want %d; %v, want one about %q", got, good, err, field)
	}
	should.Hold(t, !r.Pending() && !r.Interrupts(true) && r.Take(used) == 0, "the queue goes on")
}

// splitUsed writes an element of the device area, and the index behind it.
func splitUsed(r *rig, i int, number, length uint32, index uint16) {
	binary.LittleEndian.PutUint32(r.areas.Device[4+8*i:], number)
	binary.LittleEndian.PutUint32(r.areas.Device[8+8*i:], length)
	binary.LittleEndian.PutUint16(r.areas.Device[2:], index)
}

func TestHostileSplit(t *testing.T) {
	const number, length, index = "number of a used buffer", "length of a used buffer", "index"
	for _, tt := range []struct {
		name  string
		do    func(r *rig)
		field string
		good  int
	}{
		{"done before anything was posted", func(r *rig) { splitUsed(r, 0, 0, 0, 1) }, index, 0},
		{"not posted", func(r *rig) { lend(r, 2, true); splitUsed(r, 0, 2, 0, 1) }, number, 0},
		{"no such descriptor", func(r *rig) { lend(r, 2, true); splitUsed(r, 0, 8, 0, 1) }, number, 0},
		{"all ones", func(r *rig) { lend(r, 2, true); splitUsed(r, 0, 0xffffffff, 0xffffffff, 0xffff) }, index, 0},
		{"number of all ones", func(r *rig) { lend(r, 2, true); splitUsed(r, 0, 0xffffffff, 0, 1) }, number, 0},
		{"twice", func(r *rig) {
			lend(r, 2, true)
			splitUsed(r, 0, 1, 64, 1)
			splitUsed(r, 1, 1, 64, 2)
		}, number, 1},
		{"a byte too long", func(r *rig) { lend(r, 2, true); splitUsed(r, 0, 0, 65, 1) }, length, 0},
		{"far too long", func(r *rig) { lend(r, 2, true); splitUsed(r, 0, 0, 0xffffffff, 1) }, length, 0},
		{"more than was lent", func(r *rig) { lend(r, 2, true); splitUsed(r, 0, 0, 0, 3) }, index, 0},
		{"back", func(r *rig) {
			lend(r, 2, true)
			splitUsed(r, 0, 0, 64, 1)
			r.Take(make([]virtqueue.Used, 1))
			splitUsed(r, 0, 0, 64, 0)
		}, index, 0},
		{"the middle of a chain", func(r *rig) {
			r.AddChain([]virtqueue.Part{{Address: base, Length: 8}, {Address: base + 64, Length: 8, Writable: true}}, 5)
			r.Publish()
			splitUsed(r, 0, 1, 8, 1)
		}, number, 0},
		{"a chain, and more than its writable part", func(r *rig) {
			r.AddChain([]virtqueue.Part{{Address: base, Length: 8}, {Address: base + 64, Length: 8, Writable: true}}, 5)
			r.Publish()
			splitUsed(r, 0, 0, 9, 1)
		}, length, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, virtqueue.Options{Size: 8, Index: 7}, 8*partSize)
			tt.do(r)
			wantViolation(t, r, tt.field, tt.good)
		})
	}
}

// packedUsed writes a used descriptor of the first round.
func packedUsed(r *rig, at int, number uint16, length uint32) {
	d := r.areas.Descriptor[16*at:]
	binary.LittleEndian.PutUint32(d[8:], length)
	binary.LittleEndian.PutUint16(d[12:], number)
	binary.LittleEndian.PutUint16(d[14:], 0x8080)
}

func TestHostilePacked(t *testing.T) {
	const number, length = "number of a used buffer", "length of a used buffer"
	for _, tt := range []struct {
		name  string
		do    func(r *rig)
		field string
		good  int
	}{
		{"not posted", func(r *rig) { lend(r, 2, true); packedUsed(r, 0, 2, 0) }, number, 0},
		{"no such buffer", func(r *rig) { lend(r, 2, true); packedUsed(r, 0, 8, 0) }, number, 0},
		{"all ones", func(r *rig) {
			lend(r, 2, true)
			for i := range r.areas.Descriptor {
				r.areas.Descriptor[i] = 0xff
			}
		}, number, 0},
		{"twice", func(r *rig) {
			lend(r, 3, true)
			packedUsed(r, 0, 1, 64)
			packedUsed(r, 1, 1, 64)
		}, number, 1},
		{"a byte too long", func(r *rig) { lend(r, 2, true); packedUsed(r, 0, 0, 65) }, length, 0},
		{"far too long", func(r *rig) { lend(r, 2, true); packedUsed(r, 0, 0, 0xffffffff) }, length, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, virtqueue.Options{Format: virtqueue.Packed, Size: 8, Index: 7}, 8*partSize)
			tt.do(r)
			wantViolation(t, r, tt.field, tt.good)
		})
	}
	// What was never lent is not looked at.
	r := newRig(t, virtqueue.Options{Format: virtqueue.Packed, Size: 8, Index: 7}, 8*partSize)
	packedUsed(r, 0, 0, 0)
	should.Hold(t, !r.Pending() && r.Take(make([]virtqueue.Used, 1)) == 0 && r.Violation() == nil,
		"a buffer that was never lent: %v", r.Violation())
}

// TestLengthOfReadable: some devices say that they have written what they have read.
func TestLengthOfReadable(t *testing.T) {
	for _, kind := range kinds {
		r := newRig(t, virtqueue.Options{Format: kind.format, Size: 8, Index: 7}, 8*partSize)
		lend(r, 1, false)
		if kind.format == virtqueue.Packed {
			packedUsed(r, 0, 0, 64)
		} else {
			splitUsed(r, 0, 0, 64, 1)
		}
		var used [1]virtqueue.Used
		if n := r.Take(used[:]); n != 1 || used[0] != (virtqueue.Used{Tag: 100}) || r.Violation() != nil {
			t.Errorf("%s: %d, %+v, %v", kind.name, n, used, r.Violation())
		}
	}
}

func FuzzSplit(f *testing.F)  { fuzz(f, virtqueue.Split) }
func FuzzPacked(f *testing.F) { fuzz(f, virtqueue.Packed) }

// fuzz makes a device write what it likes anywhere in the queue's memory, while the driver
// does its work. Each two bytes of input are an operation.
func fuzz(f *testing.F, format virtqueue.Format) {
	const size = 8
	f.Add([]byte{0, 1, 0, 1, 2, 0, 8, 0, 9, 3, 3, 0})
	f.Add([]byte{1, 3, 2, 0, 4, 255, 5, 255, 3, 0, 6, 1, 2, 0, 7, 0, 3, 0})
	f.Add([]byte{0, 0, 2, 0, 8, 0, 9, 63, 3, 0, 0, 0, 2, 0, 8, 0, 9, 65, 3, 0, 6, 0, 6, 1})
	f.Fuzz(func(t *testing.T, input []byte) {
		for _, eventIndex := range []bool{false, true} {
			r := newRig(t, virtqueue.Options{Format: format, Size: size, EventIndex: eventIndex}, size*partSize)
			lent := map[uint32]uint32{} // room by tag
			used := make([]virtqueue.Used, size)
			descriptors := 0
			sizes := map[uint32]int{}
			at := 0
			for i := 0; i+1 < len(input); i += 2 {
				tag, v := uint32(i), int(input[i+1])
				switch input[i] % 10 {
				case 0:
					if r.Room() > 0 {
						p := virtqueue.Part{Address: base, Length: uint32(v), Writable: v&1 != 0}
						r.Add(p, tag)
						lent[tag], sizes[tag] = 0, 1
						if p.Writable {
							lent[tag] = p.Length
						}
						descriptors++
					}
				case 1:
					if n := 1 + v%4; r.Room() >= n {
						r.AddChain([]virtqueue.Part{{Length: 1}, {Length: 2, Writable: true}, {Length: 3, Writable: true}, {Length: 4, Writable: true}}[:n], tag)
						lent[tag], sizes[tag] = uint32([]int{0, 2, 5, 9}[n-1]), n
						descriptors += n
					}
				case 2:
					r.Publish()
				case 3:
					broken := r.Violation() != nil
					n := r.Take(used)
					must.Hold(t, !broken || n <= 0, "a queue that is broken gives buffers")
					for _, u := range used[:n] {
						room, ok := lent[u.Tag]
						must.Hold(t, ok && u.Length <= room, "buffer %d of %d bytes, lent %v with room for %d", u.Tag, u.Length, ok, room)
						delete(lent, u.Tag)
						descriptors -= sizes[u.Tag]
					}
				case 4:
					at = v
				case 5:
					at = at&0xff | v<<8
				case 6:
					r.Interrupts(v&1 != 0)
				case 7:
					r.ring[at%len(r.ring)] = byte(v)
					at++
				case 8: // an honest device: the next buffer comes back, with any length
					if b, ok, _ := r.device.Next(); ok {
						r.device.Use(b, uint32(v))
					}
				case 9:
					r.device.Flush()
				}
				if r.Lent() != len(lent) || r.Violation() == nil && r.Room() != size-descriptors {
					t.Fatalf("%d lent, room for %d, %v; want %d and %d", r.Lent(), r.Room(), r.Violation(), len(lent), size-descriptors)
				}
			}
			r.Reclaim(func(tag uint32) {
				_, ok := lent[tag]
				must.Hold(t, ok, "buffer %d was reclaimed and is not lent", tag)
				delete(lent, tag)
			})
			must.Be(t, len(lent), 0, "buffers are lost")
		}
	})
}
