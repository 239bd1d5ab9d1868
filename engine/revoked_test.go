package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// machines runs a test over a wire that loses nothing, and over one that might.
func machines(t *testing.T, f func(t *testing.T, options ...option)) {
	t.Run("exact", func(t *testing.T) { f(t, exactly(nil)) })
	t.Run("acknowledged", func(t *testing.T) { f(t) })
}

func deregister(n *node, handle uint32) {
	do(n, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: handle})
}

// TestRevokedBeforeTheFrame: memory that is taken away after the receive was fetched ahead
// is not written, whatever has taken its place in the table.
func TestRevokedBeforeTheFrame(t *testing.T) {
	for name, revoke := range map[string]func(n *node, data uint32){
		"deregistered":         deregister,
		"registered anew":      func(n *node, data uint32) { deregister(n, data); n.memory(0, 0) },
		"another tag's by now": func(n *node, data uint32) { deregister(n, data); n.memory(tagOf(n), 0) },
		"unmapped": func(n *node, _ uint32) {
			n.e.Exclusive(func() {
				n.gen++
				n.refuse = func(iova uint64, _ bool) bool { return iova >= busBase+uint64(len(n.mem))/2 }
			})
		},
	} {
		for _, size := range []int{100, 5000} {
			t.Run(name, func(t *testing.T) {
				machines(t, func(t *testing.T, options ...option) {
					w, v, p := pair(t, nil, options...)
					half := uint64(len(w.b.mem)) / 2
					reply := do(w.b, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{
						Address: hostBase + half, Length: half, IOVA: busBase + half})
					data := datasheet.Reply[datasheet.RegionReply](reply).Handle
					w.b.brk = half
					buf, at, _ := w.b.alloc(size)
					w.b.brk = 16 << 20
					r, _ := p.descriptor()
					if err := r.AddData(at, data, uint32(size)); err != nil {
						t.Fatal(err)
					}
					p.postRecv(r)
					w.settle()
					revoke(w.b, data)
					s, out := v.descriptor(size)
					copy(out[0], pattern(size, 1))
					v.postSend(s)
					w.run("the end", func() bool { return s.Status().Done() && r.Status().Done() })
					if s.Status()&datasheet.StatusRemoteDescriptor == 0 || r.Status()&datasheet.StatusProtectionError == 0 {
						t.Errorf("%v, %v", s.Status(), r.Status())
					}
					mustEqual(t, buf, make([]byte, size))
				})
			})
		}
	}
}

func tagOf(n *node) uint32 {
	r := do(n, datasheet.OpCreatePtag, datasheet.PtagBody{})
	return datasheet.Reply[datasheet.PtagBody](r).Ptag
}

// TestForeignTag: a receive over a region of another protection tag is refused.
func TestForeignTag(t *testing.T) {
	machines(t, func(t *testing.T, options ...option) {
		w, v, p := pair(t, nil, options...)
		data := w.b.memory(tagOf(w.b), 0)
		buf, at, _ := w.b.alloc(100)
		r, _ := p.descriptor()
		if err := r.AddData(at, data, 100); err != nil {
			t.Fatal(err)
		}
		p.postRecv(r)
		w.settle()
		s, out := v.descriptor(100)
		copy(out[0], pattern(100, 1))
		v.postSend(s)
		w.run("the end", func() bool { return s.Status().Done() && r.Status().Done() })
		if s.Status()&datasheet.StatusRemoteDescriptor == 0 || r.Status()&datasheet.StatusProtectionError == 0 {
			t.Errorf("%v, %v", s.Status(), r.Status())
		}
		mustEqual(t, buf, make([]byte, 100))
	})
}

// TestStatusOfRevokedDescriptor: the status of a send or receive whose descriptor has been
// taken away meanwhile is not written there; an event says so.
func TestStatusOfRevokedDescriptor(t *testing.T) {
	machines(t, func(t *testing.T, options ...option) {
		for _, again := range []bool{false, true} {
			w, v, p := pair(t, nil, options...)
			other := map[*node]uint32{w.a: w.a.memory(0, 0), w.b: w.b.memory(0, 0)}
			make := func(x *vi) *descriptors.Descriptor {
				mem, address, _ := x.n.alloc(descriptors.DescriptorBytes(1))
				d, err := descriptors.NewDescriptor(mem, address, other[x.n])
				if err != nil {
					t.Fatal(err)
				}
				_, at, _ := x.n.alloc(100)
				if err := d.AddData(at, x.handle, 100); err != nil {
					t.Fatal(err)
				}
				return d
			}
			r, s := make(p), make(v)
			p.postRecv(r)
			w.settle()
			v.postSend(s)
			w.settleOnly(w.a) // it is under way
			for n, h := range other {
				deregister(n, h)
				if again {
					n.memory(0, 0)
				}
			}
			w.run("the events", func() bool { return len(w.a.events) > 0 && len(w.b.events) > 0 })
			w.settle()
			for _, n := range []*node{w.a, w.b} {
				if len(n.events) != 1 || n.events[0].Code != datasheet.EventCompletionProtect {
					t.Errorf("%+v", n.events)
				}
			}
			if s.Status() != 0 || r.Status() != 0 {
				t.Errorf("written all the same: %v, %v", s.Status(), r.Status())
			}
			mustArrive(t, v, p, 100, 1)
		}
	})
}

// TestRevokedPayloadEntry: an entry of the payload table ends with its region.
func TestRevokedPayloadEntry(t *testing.T) {
	machines(t, func(t *testing.T, options ...option) {
		w, v, p := pair(t, nil, options...)
		data := w.b.memory(0, 0)
		buf, at, _ := w.b.alloc(100)
		do(w.b, datasheet.OpSetPayload, datasheet.SetPayloadBody{Endpoint: p.id, Entry: 1, Handle: data, Address: at, Length: 100})
		steer := &scripted{t: t, demux: func(_ []byte, queue uint32) (uint32, uint32, bool) { return queue, 1, true }}
		w.b.e.Exclusive(func() { w.b.e.SetProcessor(steer, engine.HookDemultiplex.Set(), 0) })
		if sent, received, _ := message(v, p, pattern(100, 1)); sent.Failed() || received.Failed() {
			t.Fatal(sent, received)
		}
		mustEqual(t, buf, pattern(100, 1))
		clear(buf)
		deregister(w.b, data)
		sent, received, _ := message(v, p, pattern(100, 2))
		if sent&datasheet.StatusRemoteDescriptor == 0 || received&datasheet.StatusProtectionError == 0 {
			t.Errorf("%v, %v", sent, received)
		}
		mustEqual(t, buf, make([]byte, 100))
	})
}
