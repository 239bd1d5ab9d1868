package engine_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// one are the flags of a message of one frame.
const one = datasheet.FrameFirst | datasheet.FrameLast

// TestFramesOfNoMessage: frames that neither begin a message nor go on with one do
// nothing, whether a message has come before or not, and however empty they are.
func TestFramesOfNoMessage(t *testing.T) {
	for _, before := range []uint32{0, 1} {
		for _, receives := range []uint32{0, 2} {
			t.Run(fmt.Sprintf("%d messages, %d receives", before, receives), func(t *testing.T) {
				x := newImpostor(t, unreliableVI)
				for range before + receives {
					d, _ := x.p.descriptor(100)
					x.p.postRecv(d)
				}
				for m := range before {
					x.send(0, one, m, 5, 0, []byte("first"))
				}
				for m := range uint32(3) {
					for range 17 {
						x.send(0, 0, m, 0, 0, nil)
						x.send(0, datasheet.FrameLast, m, 5, 5, nil)
						x.send(0, datasheet.FrameLast, m, 5, 0, nil)
						x.send(0, datasheet.FrameLast, m, 5, 0, []byte("again"))
					}
				}
				if c := x.counts(); c.RecvCompleted != before {
					t.Fatalf("%d messages have completed %d receives", before, c.RecvCompleted)
				}
				x.mustServe(t)
			})
		}
	}
}

// TestEmptyPartsOfAMessage: no frame but that of an empty message is empty.
func TestEmptyPartsOfAMessage(t *testing.T) {
	x := newImpostor(t, unreliableVI)
	d, in := x.p.descriptor(100)
	x.p.postRecv(d)
	x.send(0, datasheet.FrameFirst, 0, 5, 0, nil) // begins nothing
	x.send(0, datasheet.FrameLast, 0, 5, 0, []byte("wrong"))
	x.send(0, datasheet.FrameFirst, 1, 5, 0, []byte("go"))
	x.send(0, 0, 1, 5, 2, nil)
	x.send(0, datasheet.FrameLast, 1, 5, 2, []byte("od!"))
	x.send(0, datasheet.FrameLast, 1, 5, 5, nil)
	if d.Status().Failed() || string(in[0][:d.Length()]) != "good!" {
		t.Errorf("%v, %q", d.Status(), in[0][:d.Length()])
	}
	if c := x.counts(); c.RecvCompleted != 1 {
		t.Errorf("%d receives completed", c.RecvCompleted)
	}
	x.mustServe(t)
}

// deliveries posts n receives of 100 bytes, has act send to them, and returns what
// has arrived.
func (x *impostor) deliveries(n int, act func()) (got []string) {
	var in [][]byte
	first := len(x.p.recv.posted)
	for range n {
		d, bufs := x.p.descriptor(100)
		in = append(in, bufs[0])
		x.p.postRecv(d)
	}
	act()
	for i, d := range x.p.recv.posted[first:] {
		if d.Status().Done() && !d.Status().Failed() {
			got = append(got, string(in[i][:d.Length()]))
		}
	}
	return got
}

// TestCopiesAndLateOnes: a message that has come before, or before which a later one
// has come, is not delivered, and does not disturb the one that is being received.
func TestCopiesAndLateOnes(t *testing.T) {
	const f, l = datasheet.FrameFirst, datasheet.FrameLast
	type frame struct {
		flags          datasheet.FrameFlags
		message        uint32
		extent, offset uint32
		payload        string
	}
	for name, tt := range map[string]struct {
		frames []frame
		want   string
	}{
		"copies":                 {[]frame{{one, 0, 1, 0, "a"}, {one, 0, 1, 0, "a"}, {one, 1, 1, 0, "b"}, {one, 0, 1, 0, "a"}, {one, 1, 1, 0, "b"}}, "[a b]"},
		"empty copies":           {[]frame{{one, 0, 0, 0, ""}, {one, 0, 0, 0, ""}, {one, 1, 0, 0, ""}}, "[ ]"},
		"overtaken":              {[]frame{{one, 1, 1, 0, "b"}, {one, 0, 1, 0, "a"}, {one, 2, 1, 0, "c"}}, "[b c]"},
		"copy of the first part": {[]frame{{f, 0, 3, 0, "a"}, {f, 0, 3, 0, "a"}, {0, 0, 3, 1, "b"}, {l, 0, 3, 2, "c"}}, "[abc]"},
		"copy of a middle part":  {[]frame{{f, 0, 3, 0, "a"}, {0, 0, 3, 1, "b"}, {0, 0, 3, 1, "b"}, {l, 0, 3, 2, "c"}}, "[abc]"},
		"copy of the last part":  {[]frame{{f, 0, 2, 0, "a"}, {l, 0, 2, 1, "b"}, {l, 0, 2, 1, "b"}, {one, 1, 1, 0, "c"}}, "[ab c]"},
		"copies of one before":   {[]frame{{one, 0, 1, 0, "a"}, {f, 1, 2, 0, "b"}, {one, 0, 1, 0, "a"}, {l, 1, 2, 1, "c"}}, "[a bc]"},
		"a part is missing":      {[]frame{{f, 0, 3, 0, "a"}, {l, 0, 3, 2, "c"}, {0, 0, 3, 1, "b"}, {l, 0, 3, 2, "c"}, {one, 1, 1, 0, "d"}}, "[d]"},
		"a part of another":      {[]frame{{f, 0, 2, 0, "a"}, {l, 0, 3, 1, "x"}, {l, 1, 2, 1, "y"}, {l, 0, 2, 1, "b"}}, "[ab]"},
		"bad first ones":         {[]frame{{f, 5, 2, 1, "x"}, {f, 5, 1, 0, "xy"}, {f, 5, 1 << 31, 0, "x"}, {one, 0, 1, 0, "a"}}, "[a]"},
		"numbers wrap": {[]frame{{one, 0x7fff_ffff, 1, 0, "a"}, {one, 0xffff_fffe, 1, 0, "b"}, {one, 0xffff_ffff, 1, 0, "c"}, {one, 0, 1, 0, "d"},
			{one, 0xffff_ffff, 1, 0, "c"}, {one, 0, 1, 0, "d"}, {f, 1, 2, 0, "e"}, {l, 1, 2, 1, "f"}, {l, 1, 2, 1, "f"}}, "[a b c d ef]"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newImpostor(t, unreliableVI, smallMemory)
			got := x.deliveries(8, func() {
				for _, m := range tt.frames {
					x.send(0, m.flags, m.message, m.extent, m.offset, []byte(m.payload))
				}
			})
			if s := fmt.Sprint(got); s != tt.want {
				t.Errorf("arrived: %s, want %s", s, tt.want)
			}
			x.mustServe(t)
		})
	}
}

// TestCopyOfADroppedMessage: a message that met no receive is gone, and its copy is
// no second one.
func TestCopyOfADroppedMessage(t *testing.T) {
	x := newImpostor(t, unreliableVI, smallMemory)
	x.send(0, one, 0, 1, 0, []byte("a"))
	if got := x.deliveries(2, func() {
		x.send(0, one, 0, 1, 0, []byte("a"))
		x.send(0, one, 1, 1, 0, []byte("b"))
	}); fmt.Sprint(got) != "[b]" {
		t.Errorf("arrived: %q", got)
	}
	if n := x.w.b.e.Counter(datasheet.CounterReceiveQueueEmpty); n != 1 || len(x.w.b.events) != 1 {
		t.Errorf("%d messages dropped, %d events", n, len(x.w.b.events))
	}
}

// TestUnreliableDuplicates: what a wire doubles and reorders arrives at most once, and
// in order, whether in one frame or in several.
func TestUnreliableDuplicates(t *testing.T) {
	for _, size := range []int{0, 8, 5000} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%d bytes, seed %d", size, seed), func(t *testing.T) {
				w, v, p := pair(t, unreliable, lossy(seed, 0.05, 0.5, 0.1, 0))
				const messages = 1 << queueLog2
				var in [][]byte
				for range messages {
					r, b := p.descriptor(size)
					in = append(in, b[0])
					p.postRecv(r)
				}
				for i := range messages {
					s, out := v.descriptor(size)
					copy(out[0], pattern(size, uint64(i)))
					s.SetImmediate(uint32(i))
					v.postSend(s)
					w.settle()
				}
				last, arrived := -1, 0
				for i, r := range p.recv.posted {
					if !r.Status().Done() {
						break
					}
					number, _ := r.Immediate()
					if int(number) <= last {
						t.Errorf("message %d arrived after message %d", number, last)
					}
					mustEqual(t, in[i], pattern(size, uint64(number)))
					last = int(number)
					arrived++
				}
				if arrived < messages/4 {
					t.Errorf("%d of %d messages arrived", arrived, messages)
				}
			})
		}
	}
}
