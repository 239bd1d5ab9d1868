package igb_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
)

func TestReceivedMetadata(t *testing.T) {
	const ip, l4 = fakeigb.IPChecked, fakeigb.L4Checked
	for _, tt := range []struct {
		name     string
		offloads ethernet.Offloads
		status   uint64
		low      uint64
		want     ethernet.Frame
	}{
		{"nothing", 0, 0, 0, ethernet.Frame{}},
		{"checked, but not asked for", 0, ip | l4, 0, ethernet.Frame{}},
		{"good sums", ethernet.OffloadReceiveSum, ip | l4, 0, ethernet.Frame{Flags: ethernet.IPSumGood | ethernet.L4SumGood}},
		{"not looked at", ethernet.OffloadReceiveSum, 0, 0, ethernet.Frame{}},
		{"bad IP", ethernet.OffloadReceiveSum, ip | l4 | fakeigb.IPBad, 0, ethernet.Frame{Flags: ethernet.IPSumBad | ethernet.L4SumGood}},
		{"bad TCP", ethernet.OffloadReceiveSum, ip | l4 | fakeigb.L4Bad, 0, ethernet.Frame{Flags: ethernet.IPSumGood | ethernet.L4SumBad}},
		{"a tag", ethernet.OffloadVLAN, fakeigb.VLAN, 0, ethernet.Frame{Flags: ethernet.VLANTagged, VLAN: 0x6123}},
		{"a hash", ethernet.OffloadHash, 0, 0xabcdef01<<32 | 2, ethernet.Frame{Flags: ethernet.Hashed, Hash: 0xabcdef01}},
		{"no hash", ethernet.OffloadHash, 0, 0xabcdef01 << 32, ethernet.Frame{}},
		{"a hash, but not asked for", 0, 0, 0xabcdef01<<32 | 2, ethernet.Frame{}},
	} {
		d := newFake(t, fakeigb.Options{})
		p := open(t, d, ethernet.Options{Offloads: tt.offloads, ReceiveDescriptors: 64})
		d.Deliver(0, porttest.FrameTo(own, 77), tt.status, 0x6123, tt.low)
		frames, _ := porttest.ReceiveAll(t, p.Queue(0))
		must.Be(t, len(frames), 1, "%s: frames", tt.name)
		want := tt.want
		want.Buffer, want.Offset, want.Length = frames[0].Buffer, 64, 77
		should.Be(t, frames[0], want, "%s", tt.name)
	}
}

// TestSendRefuses sends frames whose offloads cannot be: nothing of them reaches the device,
// and what comes before them does. The suite has frames that no driver sends.
func TestSendRefuses(t *testing.T) {
	const all = ethernet.OffloadAll
	sums := func(f *ethernet.Frame) { f.Flags, f.L2, f.L3, f.L4 = ethernet.SumIPv4|ethernet.SumTCP, 14, 20, 20 }
	for _, tt := range []struct {
		name     string
		offloads ethernet.Offloads
		change   func(f *ethernet.Frame)
	}{
		{"segments without the offload", ethernet.OffloadSendSum, func(f *ethernet.Frame) { sums(f); f.Segment = 100 }},
		{"segments without a sum", all, func(f *ethernet.Frame) { f.Segment = 100 }},
		{"segments longer than the MTU", all, func(f *ethernet.Frame) { sums(f); f.Segment = 1490 }},
		{"segments without a TCP header", all, func(f *ethernet.Frame) { sums(f); f.Segment, f.L4 = 100, 0 }},
		{"headers longer than the frame", all, func(f *ethernet.Frame) { sums(f); f.L3 = 200 }},
		{"no Ethernet header", all, func(f *ethernet.Frame) { sums(f); f.L2 = 0 }},
		{"an Ethernet header that is too long", all, func(f *ethernet.Frame) { sums(f); f.L2 = 128 }},
		{"no IP header", all, func(f *ethernet.Frame) { sums(f); f.L3 = 0 }},
		{"two sums", all, func(f *ethernet.Frame) { sums(f); f.Flags |= ethernet.SumUDP }},
		{"IPv6 with the sum of IPv4", all, func(f *ethernet.Frame) { sums(f); f.Flags |= ethernet.IPv6 }},
		{"a sum, longer than the MTU", all, func(f *ethernet.Frame) { sums(f); f.Length = 1519 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newFake(t, fakeigb.Options{})
			sent := 0
			d.OnSend = func(fakeigb.Sent) { sent++ }
			p := open(t, d, ethernet.Options{Offloads: tt.offloads})
			q := p.Queue(0)
			frames := make([]ethernet.Frame, 3)
			q.Cache().Alloc(frames)
			for i := range frames {
				frames[i].Length = 60
				copy(q.Cache().Pool().Bytes(frames[i]), porttest.FrameTo(own, 60))
			}
			good := frames[1]
			tt.change(&frames[1])
			n, err := q.Send(frames)
			should.Hold(t, n == 1 && errors.Is(err, ethernet.ErrBadFrame) && sent == 1, "sent %d (the device: %d), %v", n, sent, err)
			frames[1] = good
			n, err = q.Send(frames[1:])
			should.Hold(t, n == 2 && err == nil && sent == 3, "afterwards sent %d (the device: %d), %v", n, sent, err)
		})
	}
}

// TestContextsFillRing fills the ring with frames that need contexts, while the device
// stands still: the last context is not let in without its frame.
func TestContextsFillRing(t *testing.T) {
	for first := range 2 {
		d := newFake(t, fakeigb.Options{})
		var got []fakeigb.Sent
		d.OnSend = func(s fakeigb.Sent) { got = append(got, s) }
		end := standStill(d)
		p := open(t, d, ethernet.Options{Offloads: ethernet.OffloadAll, SendDescriptors: 64})
		for range first { // so that the ring ends with one place, or with two
			send(t, p, 0, porttest.FrameTo(own, 60), nil)
		}
		taken := 0
		for i := 1; ; i++ {
			n, err := porttest.TrySend(p.Queue(0), porttest.FrameTo(own, 60), func(f *ethernet.Frame) { f.Flags, f.VLAN = ethernet.VLANTagged, uint16(i) })
			must.OK(t, err)
			if n == 0 {
				break
			}
			taken++
		}
		should.Be(t, taken, (63-first)/2, "frames were taken")
		should.Give(p.Queue(0).Unsent())(t, first+taken, "unsent")
		end()
		must.OK(t, p.Restart(contextFor(t)))
		got = nil
		send(t, p, 0, porttest.FrameTo(own, 60), func(f *ethernet.Frame) { f.Flags, f.VLAN = ethernet.VLANTagged, 77 })
		should.Hold(t, len(got) == 1 && got[0].Context[0] == 77<<16, "after a restart: %+v", got)
	}
}

// TestContexts looks at what the device is told about checksums and tags: once for all
// frames that have it in common.
func TestContexts(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	var got []fakeigb.Sent
	d.OnSend = func(s fakeigb.Sent) { got = append(got, s) }
	p := open(t, d, ethernet.Options{Offloads: ethernet.OffloadAll, SendDescriptors: 64})
	kinds := []func(f *ethernet.Frame){
		func(f *ethernet.Frame) {},
		func(f *ethernet.Frame) { f.Flags, f.VLAN = ethernet.VLANTagged, 0x2005 },
		func(f *ethernet.Frame) { f.Flags, f.L2, f.L3 = ethernet.SumIPv4|ethernet.SumUDP, 14, 20 },
		func(f *ethernet.Frame) { f.Flags, f.L2, f.L3 = ethernet.SumTCP|ethernet.IPv6, 18, 40 },
	}
	wantContext := [][2]uint64{{}, {0x2005 << 16, 0x20200000}, {14<<9 | 20, 0x20200400}, {18<<9 | 40, 0x20200800}}
	wantOptions := []uint64{0, 0, 3 << 40, 2 << 40}
	// So often that contexts and frames meet the end of the ring in every way.
	for i := range 400 {
		kind := i / 3 % len(kinds)
		got = got[:0]
		send(t, p, 0, porttest.FrameTo(own, 100), kinds[kind])
		must.Be(t, len(got), 1, "frame %d", i)
		s := got[0]
		must.Hold(t, kind == 0 || s.Context == wantContext[kind], "frame %d: context %#x, want %#x", i, s.Context, wantContext[kind])
		options := s.Descriptor[1] >> 32 & 0x3fff << 32
		must.Hold(t, options == wantOptions[kind] && s.Descriptor[1]>>46 == 100, "frame %d: descriptor %#x", i, s.Descriptor)
		must.Be(t, s.Descriptor[1]&(1<<30) != 0, kind == 1, "frame %d: descriptor %#x", i, s.Descriptor)
	}
	should.Give(p.Queue(0).Unsent())(t, 0, "unsent")
}
