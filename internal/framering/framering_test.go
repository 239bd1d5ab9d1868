package framering_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/framering"
)

const log2 = 17

// memory is mapped, as that of two processes is: the race detector does not look there.
func memory(t fataler) []byte {
	m := must.Get(unix.Mmap(-1, 0, framering.Size(log2), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS))(t)
	t.Cleanup(func() { _ = unix.Munmap(m) })
	return m
}

type fataler interface {
	must.TB
	Cleanup(func())
}

func pair(t fataler, snaplen int) (*framering.Writer, *framering.Reader, []byte) {
	m := memory(t)
	w := must.Get(framering.NewWriter(m, snaplen))(t)
	r := must.Get(framering.NewReader(m))(t)
	return w, r, m
}

// TestModel: what is read is what was written, in order, but for what was dropped for want of
// room, and that is counted.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		snaplen := rapid.SampledFrom([]int{0, 1, 64, 4000}).Draw(t, "snaplen")
		w, r, _ := pair(t, snaplen)
		type shown struct {
			at    time.Time
			sent  bool
			frame []byte
		}
		var queued []shown
		dropped := uint64(0)
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "put") {
				s := shown{time.Unix(0, int64(i)), rapid.Bool().Draw(t, "sent"), bytes.Repeat([]byte{byte(i)}, rapid.IntRange(0, framering.MaxFrame).Draw(t, "length"))}
				before := r.Dropped()
				w.Put(s.at, s.sent, s.frame)
				if r.Dropped() == before {
					queued = append(queued, s)
				} else if dropped++; len(queued) == 0 {
					t.Fatal("an empty ring drops a frame")
				}
				continue
			}
			f, ok, err := r.Next()
			if err != nil || ok != (len(queued) > 0) {
				t.Fatalf("%v, %v with %d frames queued", ok, err, len(queued))
			}
			if !ok {
				continue
			}
			want := queued[0]
			queued = queued[1:]
			kept := want.frame
			if snaplen > 0 {
				kept = kept[:min(len(kept), snaplen)]
			}
			if !f.At.Equal(want.at) || f.Sent != want.sent || f.Length != len(want.frame) || !bytes.Equal(f.Bytes, kept) {
				t.Fatalf("%v %v %d of %d bytes, want %v %v %d", f.At, f.Sent, len(f.Bytes), f.Length, want.at, want.sent, len(want.frame))
			}
		}
		if r.Dropped() != dropped || r.Ended() {
			t.Fatalf("%d dropped, want %d; ended %v", r.Dropped(), dropped, r.Ended())
		}
		if w.End(); !r.Ended() {
			t.Fatal("it has not ended")
		}
	})
}

// TestTogether: a writer and a reader at the same time.
func TestTogether(t *testing.T) {
	w, r, _ := pair(t, 0)
	const all = 20_000
	go func() {
		for i := range all {
			frame := make([]byte, 60+i%3000)
			binary.LittleEndian.PutUint32(frame, uint32(i))
			w.Put(time.Now(), i%2 == 0, frame)
		}
		w.End()
	}()
	got, last := 0, -1
	for end := time.Now().Add(time.Minute); ; {
		ended := r.Ended()
		f, ok, err := r.Next()
		if err != nil || time.Now().After(end) {
			t.Fatalf("%d frames, %v", got, err)
		}
		if !ok {
			if ended {
				break
			}
			continue
		}
		i := int(binary.LittleEndian.Uint32(f.Bytes))
		if i <= last || f.Length != 60+i%3000 || f.Sent != (i%2 == 0) {
			t.Fatalf("frame %d of %d bytes behind %d", i, f.Length, last)
		}
		got, last = got+1, i
	}
	if uint64(got)+r.Dropped() != all {
		t.Errorf("%d read and %d dropped of %d", got, r.Dropped(), all)
	}
}

// TestNoAllocation: the writer is on the data path.
func TestNoAllocation(t *testing.T) {
	w, _, _ := pair(t, 0)
	frame, now := make([]byte, 1000), time.Now()
	should.Be(t, testing.AllocsPerRun(500, func() { w.Put(now, true, frame) }), 0, "allocations") // most are dropped
}

func TestBadMemory(t *testing.T) {
	good := memory(t)
	must.Get(framering.NewWriter(good, 0))(t)
	other := bytes.Clone(good)
	other[0]++
	large := bytes.Clone(good)
	binary.LittleEndian.PutUint64(large[8:], 1<<40)
	odd := bytes.Clone(good)
	binary.LittleEndian.PutUint64(odd[8:], 1<<log2-8)
	for name, m := range map[string][]byte{"none": nil, "a page": make([]byte, 4096), "zeros": memory(t), "another version": other,
		"a size of more": large, "an odd size": odd, "cut": good[:len(good)-1]} {
		should.Refuse(framering.NewReader(m))(t, framering.ErrFormat, "%s", name)
	}
	for _, n := range []int{0, 4096, 4096 + 1<<16, 4096 + 3<<17} {
		should.Refuse(framering.NewWriter(make([]byte, n), 0))(t, framering.ErrFormat, "a writer in %d bytes", n)
	}
}

// TestLyingReader: whatever position a reader claims, the writer stays within its ring.
func TestLyingReader(t *testing.T) {
	w, _, m := pair(t, 0)
	for i, claim := range []uint64{1, 1 << 63, 1<<64 - 1, 1 << 20, 7} {
		binary.LittleEndian.PutUint64(m[256:], claim)
		for range 100 {
			w.Put(time.Now(), true, make([]byte, 1000*i))
		}
	}
}

// FuzzReader: whatever stands in the memory, a reader gets frames that can be, or an error, and
// comes to an end.
func FuzzReader(f *testing.F) {
	w, _, m := pair(f, 0)
	f.Add(bytes.Clone(m[:1000]), bytes.Clone(m[4096:5000]))
	for i := range 5 {
		w.Put(time.Unix(1, 2), i%2 == 0, bytes.Repeat([]byte{9}, 60*i))
	}
	f.Add(bytes.Clone(m[:1000]), bytes.Clone(m[4096:5000]))
	binary.LittleEndian.PutUint32(m[4096:], 1<<32-1)
	f.Add(bytes.Clone(m[:1000]), bytes.Clone(m[4096:5000]))
	f.Fuzz(func(t *testing.T, head, ring []byte) {
		m := memory(t)
		copy(m, head[:min(len(head), 4096)])
		copy(m[4096:], ring)
		r, err := framering.NewReader(m)
		if err != nil {
			return
		}
		for range len(m) { // a record takes some bytes
			f, ok, err := r.Next()
			if err != nil || !ok {
				return
			}
			if len(f.Bytes) > f.Length || len(f.Bytes) > framering.MaxFrame {
				t.Fatalf("%d of %d bytes", len(f.Bytes), f.Length)
			}
		}
		t.Fatal("it does not end")
	})
}
