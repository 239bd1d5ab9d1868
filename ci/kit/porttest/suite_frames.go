package porttest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// receive has more frames arrive than the ring holds, several times around, in bursts of all sizes.
func (s suite) receive(t *testing.T) {
	d, p := s.open(t, ethernet.Options{ReceiveDescriptors: 64})
	must.Get(ethernet.WaitLink(Context(t), p))(t)
	count, size := uint64(0), uint64(0)
	for round := range 40 {
		var want [][]byte
		for i := range round + 1 {
			want = append(want, FrameTo(Own, 60+(round*41+i)%1459))
			size += uint64(len(want[i]))
			must.Hold(t, d.Arrive(want[i]), "frame %d of round %d was not taken", i, round)
		}
		frames, got := ReceiveAll(t, p.Queue(0))
		Same(t, want, got)
		for _, f := range frames {
			should.Hold(t, f.Offset == 64 && f.Flags == 0, "frame %+v", f)
		}
		count += uint64(len(frames))
	}
	if q := p.Stats().Queues[0]; q.ReceivedFrames != count || q.ReceivedBytes != size {
		t.Errorf("counted %d frames and %d bytes, want %d and %d", q.ReceivedFrames, q.ReceivedBytes, count, size)
	}
}

// noBuffers keeps all buffers: frames wait in the ring until some are free.
func (s suite) noBuffers(t *testing.T) {
	pool := NewPool(t, ethernet.PoolOptions{Buffers: 100})
	d, p := s.open(t, ethernet.Options{Pool: pool, ReceiveDescriptors: 64})
	q := p.Queue(0)
	all := make([]ethernet.Frame, 36)
	must.Be(t, q.Cache().Alloc(all), 36, "buffers were left")
	for i := range 10 {
		d.Arrive(FrameTo(Own, 60+i))
	}
	burst := make([]ethernet.Frame, 32)
	must.Give(q.Receive(burst))(t, 0)
	should.Be(t, p.Stats().Queues[0].NoBuffers, 1, "counted")
	q.Cache().Free(all[:4])
	n, err := q.Receive(burst)
	must.Hold(t, n == 4 && err == nil && burst[0].Length == 60 && burst[3].Length == 63, "received %d, %v", n, err)
	q.Cache().Free(all[4:])
	q.Cache().Free(burst[:4])
	frames, _ := ReceiveAll(t, q)
	should.Hold(t, len(frames) == 6 && frames[0].Length == 64, "received %d afterwards", len(frames))
}

// send sends bursts of all sizes and lengths.
func (s suite) send(t *testing.T) {
	pool := NewPool(t, ethernet.PoolOptions{Buffers: 256})
	d, p := s.open(t, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, SendDescriptors: 64})
	var want, got [][]byte
	d.Sends(func(b []byte) { got = append(got, bytes.Clone(b)) })
	q := p.Queue(0)
	size := uint64(0)
	for round := range 50 {
		frames := make([]ethernet.Frame, 1+round)
		must.Be(t, q.Cache().Alloc(frames), len(frames), "round %d: buffers", round)
		for i := range frames {
			data := FrameTo(Own, ethernet.MinFrame+(round*53+i*7)%1459)
			frames[i].Length = uint16(len(data))
			copy(pool.Bytes(frames[i]), data)
			want = append(want, data)
			size += uint64(len(data))
		}
		for len(frames) > 0 {
			n := must.Get(q.Send(frames))(t)
			frames = frames[n:]
		}
	}
	Same(t, want, got)
	should.Give(q.Unsent())(t, 0, "unsent")
	if q := p.Stats().Queues[0]; q.SentFrames != uint64(len(want)) || q.SentBytes != size {
		t.Errorf("counted %+v", q)
	}
}

// forward passes frames from one NIC to another without a copy: the buffers are mapped into both.
func (s suite) forward(t *testing.T) {
	pool := NewPool(t, ethernet.PoolOptions{})
	in, a := s.open(t, ethernet.Options{Pool: pool})
	out, b := s.open(t, ethernet.Options{Pool: pool})
	var want, got [][]byte
	out.Sends(func(b []byte) { got = append(got, bytes.Clone(b)) })
	burst := make([]ethernet.Frame, 32)
	for i := range 5000 {
		data := FrameTo(Own, 60+i%1400)
		want = append(want, data)
		must.Hold(t, in.Arrive(data), "not taken")
		if i%20 != 19 {
			continue
		}
		must.Give(a.Queue(0).Receive(burst))(t, 20)
		must.Give(b.Queue(0).Send(burst[:20]))(t, 20)
	}
	Same(t, want, got)
}

// refuses sends frames that cannot be sent: nothing of them reaches the device, and what comes
// before them does.
func (s suite) refuses(t *testing.T) {
	for name, change := range map[string]func(f *ethernet.Frame){
		"too short":                     func(f *ethernet.Frame) { f.Length = 13 },
		"empty":                         func(f *ethernet.Frame) { f.Length = 0 },
		"longer than the MTU":           func(f *ethernet.Frame) { f.Length = 1519 },
		"longer than the buffer":        func(f *ethernet.Frame) { f.Offset = 2100 },
		"outside the buffer":            func(f *ethernet.Frame) { f.Offset = 65535 },
		"no such buffer":                func(f *ethernet.Frame) { f.Buffer = 4096 },
		"no buffer at all":              func(f *ethernet.Frame) { f.Buffer = 1<<32 - 1 },
		"a tag without the offload":     func(f *ethernet.Frame) { f.Flags = ethernet.VLANTagged },
		"a sum without the offload":     func(f *ethernet.Frame) { f.Flags, f.L2, f.L3 = ethernet.SumTCP, 14, 20 },
		"segments without the offload":  func(f *ethernet.Frame) { f.Segment = 100 },
		"longer, and asks for segments": func(f *ethernet.Frame) { f.Length, f.Segment = 1519, 100 },
	} {
		d, p := s.open(t, ethernet.Options{})
		sent := 0
		d.Sends(func([]byte) { sent++ })
		q := p.Queue(0)
		frames := make([]ethernet.Frame, 3)
		q.Cache().Alloc(frames)
		for i := range frames {
			frames[i].Length = 60
			copy(q.Cache().Pool().Bytes(frames[i]), FrameTo(Own, 60))
		}
		good := frames[1]
		change(&frames[1])
		n, err := q.Send(frames)
		should.Hold(t, n == 1 && errors.Is(err, ethernet.ErrBadFrame) && sent == 1, "%s: sent %d (the device: %d), %v", name, n, sent, err)
		frames[1] = good
		if n, err := q.Send(frames[1:]); n != 2 || err != nil || sent != 3 {
			t.Errorf("%s: afterwards sent %d (the device: %d), %v", name, n, sent, err)
		}
	}
}

// filters changes the filters of a port.
func (s suite) filters(t *testing.T) {
	d, p := s.open(t, ethernet.Options{})
	Filters(t, p, func(b []byte) bool {
		d.Arrive(b)
		frames, _ := ReceiveAll(t, p.Queue(0))
		return len(frames) == 1
	})
}

// Filters changes the filters of a port whose address is Own; passes says whether a frame is
// received.
func Filters(t *testing.T, p ethernet.Port, passes func(b []byte) bool) {
	other := ethernet.MAC{2, 0, 0, 0, 0, 2}
	group, group2 := ethernet.MAC{1, 0, 0x5e, 0, 0, 1}, ethernet.MAC{0x33, 0x33, 0, 0, 0, 0xfb}
	broadcast := ethernet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	tagged := func(id byte) []byte {
		b := FrameTo(p.MAC(), 100)
		copy(b[12:], []byte{0x81, 0, 0, id})
		return b
	}
	expect := func(what string, b []byte, want bool) {
		t.Helper()
		should.Be(t, passes(b), want, "%s", what)
	}
	expect("own", FrameTo(Own, 60), true)
	expect("broadcast", FrameTo(broadcast, 60), true)
	expect("another's", FrameTo(other, 60), false)
	expect("a group", FrameTo(group, 60), false)
	expect("a tagged frame", tagged(9), true)

	must.OK(t, p.SetMulticast([]ethernet.MAC{group, group2}))
	expect("a group", FrameTo(group, 60), true)
	expect("another group", FrameTo(group2, 60), true)
	must.OK(t, p.SetMulticast([]ethernet.MAC{group2}))
	expect("a group that was left", FrameTo(group, 60), false)
	must.OK(t, p.SetMulticast(nil))
	expect("all groups left", FrameTo(group2, 60), false)

	must.OK(t, p.SetMAC(other))
	should.Be(t, p.MAC(), other, "address")
	expect("the new address", FrameTo(other, 60), true)
	expect("the old address", FrameTo(Own, 60), false)
	must.OK(t, p.SetMAC(Own))

	must.OK(t, p.SetVLANs([]uint16{5, 9}))
	expect("VLAN 9", tagged(9), true)
	expect("VLAN 8", tagged(8), false)
	expect("no VLAN", FrameTo(Own, 60), true)
	must.OK(t, p.SetPromiscuous(true))
	expect("promiscuous: VLAN 8", tagged(8), true)
	expect("promiscuous: another's", FrameTo(other, 60), true)
	expect("promiscuous: a group", FrameTo(group, 60), true)
	must.OK(t, p.SetPromiscuous(false))
	expect("VLAN 8 again", tagged(8), false)
	expect("another's again", FrameTo(other, 60), false)
	must.OK(t, p.SetVLANs([]uint16{}))
	expect("no VLAN is let through", tagged(9), false)
	must.OK(t, p.SetVLANs(nil))
	expect("all VLANs", tagged(8), true)

	for name, err := range map[string]error{
		"a group as address": p.SetMAC(group), "zero": p.SetMAC(ethernet.MAC{}),
		"a station as group": p.SetMulticast([]ethernet.MAC{other}), "a VLAN": p.SetVLANs([]uint16{4096}),
	} {
		should.Fail(t, err, ethernet.ErrConfig, "%s", name)
	}
}
