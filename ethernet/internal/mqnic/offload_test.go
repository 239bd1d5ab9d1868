package mqnic_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/fakemqnic"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
)

// packet is a frame with TCP or UDP over IP, with right checksums.
type packet struct {
	tag, ipv6, udp bool
	options        int // bytes of options of IPv4, a multiple of 4 up to 40
	payload        int
	flow           uint16
}

// bytes makes the frame, and says where IP and what follows it begin.
func (p packet) bytes() (b []byte, ip, l4 int) {
	b = append(b, own[:]...)
	b = append(b, 2, 0, 0, 0, 0, 99)
	if p.tag {
		b = append(b, 0x81, 0, 0, 5)
	}
	protocol, header := byte(6), 20
	if p.udp {
		protocol, header = 17, 8
	}
	ip = len(b) + 2
	pseudo := uint32(protocol) + uint32(header+p.payload)
	if p.ipv6 {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(header+p.payload))
		b = append(b, protocol, 64)
		b = append(b, bytes.Repeat([]byte{0xfd, 1, 2, 3}, 8)...)
		pseudo += uint32(inetsum.Of(b[ip+8 : ip+40]))
	} else {
		b = append(b, 8, 0, byte(0x45+p.options/4), 0)
		b = binary.BigEndian.AppendUint16(b, uint16(20+p.options+header+p.payload))
		b = append(b, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
		b = append(b, bytes.Repeat([]byte{1}, p.options)...)
		binary.BigEndian.PutUint16(b[ip+10:], ^inetsum.Of(b[ip:]))
		pseudo += uint32(inetsum.Of(b[ip+12 : ip+20]))
	}
	l4 = len(b)
	b = append(b, make([]byte, header)...)
	binary.BigEndian.PutUint16(b[l4:], p.flow)
	binary.BigEndian.PutUint16(b[l4+2:], 9)
	field := l4 + 16
	if p.udp {
		field = l4 + 6
		binary.BigEndian.PutUint16(b[l4+4:], uint16(header+p.payload))
	} else {
		b[l4+12] = 0x50
	}
	for i := range p.payload {
		b = append(b, byte(i*11+int(p.flow)))
	}
	for pseudo += uint32(inetsum.Of(b[l4:])); pseudo > 0xffff; {
		pseudo = pseudo&0xffff + pseudo>>16
	}
	binary.BigEndian.PutUint16(b[field:], ^uint16(pseudo))
	return b, ip, l4
}

// arbitrary draws a packet.
func arbitrary(t *rapid.T) packet {
	return packet{
		tag: rapid.Bool().Draw(t, "tag"), ipv6: rapid.Bool().Draw(t, "ipv6"), udp: rapid.Bool().Draw(t, "udp"),
		options: 4 * rapid.IntRange(0, 10).Draw(t, "options"), payload: rapid.IntRange(0, 1300).Draw(t, "payload"),
		flow: rapid.Uint16().Draw(t, "flow"),
	}
}

// TestReceiveSums: right frames are good, and one wrong bit of what is summed is noticed, whatever
// padding follows.
func TestReceiveSums(t *testing.T) {
	d, _, p := rings(t, ethernet.Options{Offloads: ethernet.OffloadReceiveSum})
	flags := func(t *rapid.T, b []byte) ethernet.Flags {
		d.Arrive(0, b)
		frames := make([]ethernet.Frame, 4)
		must.Give(p.Queue(0).Receive(frames))(t, 1)
		p.Queue(0).Cache().Free(frames[:1])
		return frames[0].Flags
	}
	rapid.Check(t, func(t *rapid.T) {
		k := arbitrary(t)
		b, ip, l4 := k.bytes()
		end := len(b)
		b = append(b, rapid.SliceOfN(rapid.Byte(), 0, 18).Draw(t, "padding")...)
		ipGood := ethernet.IPSumGood
		if k.ipv6 {
			ipGood = 0
		}
		must.Be(t, flags(t, b), ipGood|ethernet.L4SumGood, "%+v", k)
		at := rapid.IntRange(l4, end-1).Draw(t, "wrong")
		bit := byte(1) << rapid.IntRange(0, 7).Draw(t, "bit")
		b[at] ^= bit
		if none := k.udp && !k.ipv6 && b[l4+6] == 0 && b[l4+7] == 0; !none {
			must.Be(t, flags(t, b), ipGood|ethernet.L4SumBad, "%+v, byte %d wrong", k, at)
		}
		b[at] ^= bit
		if !k.ipv6 {
			b[ip+8] ^= bit // time to live
			must.Be(t, flags(t, b), ethernet.IPSumBad, "%+v, IP wrong", k)
		}
	})
}

// TestNotSummed: frames of which the driver cannot tell have no verdict.
func TestNotSummed(t *testing.T) {
	d, _, p := rings(t, ethernet.Options{Offloads: ethernet.OffloadReceiveSum})
	edit := func(k packet, f func(b []byte, ip, l4 int)) []byte {
		b, ip, l4 := k.bytes()
		f(b, ip, l4)
		if !k.ipv6 {
			b[ip+10], b[ip+11] = 0, 0
			binary.BigEndian.PutUint16(b[ip+10:], ^inetsum.Of(b[ip:ip+20]))
		}
		return b
	}
	for name, tt := range map[string]struct {
		frame []byte
		want  ethernet.Flags
	}{
		"no IP":               {porttest.FrameTo(own, 60), 0},
		"only a header":       {porttest.FrameTo(own, 14), 0},
		"a fragment":          {edit(packet{payload: 100}, func(b []byte, ip, _ int) { b[ip+6] = 0x20 }), ethernet.IPSumGood},
		"a later fragment":    {edit(packet{payload: 100}, func(b []byte, ip, _ int) { b[ip+7] = 9 }), ethernet.IPSumGood},
		"UDP without a sum":   {edit(packet{udp: true, payload: 100}, func(b []byte, _, l4 int) { b[l4+6], b[l4+7] = 0, 0 }), ethernet.IPSumGood},
		"ICMP":                {edit(packet{payload: 100}, func(b []byte, ip, _ int) { b[ip+9] = 1 }), ethernet.IPSumGood},
		"longer than it is":   {edit(packet{payload: 100}, func(b []byte, ip, _ int) { b[ip+2] = 9 }), 0},
		"a header of 16":      {edit(packet{payload: 100}, func(b []byte, ip, _ int) { b[ip] = 0x44 }), 0},
		"IPv5":                {edit(packet{payload: 100}, func(b []byte, ip, _ int) { b[ip] = 0x55 }), 0},
		"IPv6 with extension": {edit(packet{ipv6: true, payload: 100}, func(b []byte, ip, _ int) { b[ip+6] = 0 }), 0},
		"IPv6, longer":        {edit(packet{ipv6: true, payload: 100}, func(b []byte, ip, _ int) { b[ip+4] = 9 }), 0},
	} {
		d.Arrive(0, tt.frame)
		frames, _ := porttest.ReceiveAll(t, p.Queue(0))
		should.Hold(t, len(frames) == 1 && frames[0].Flags == tt.want, "%s: %+v, want %#x", name, frames, uint16(tt.want))
	}
}

// TestSendSums: what leaves the device has right checksums, whether it or the driver has summed.
func TestSendSums(t *testing.T) {
	d, _, p := rings(t, ethernet.Options{Offloads: ethernet.OffloadSendSum})
	var got fakemqnic.Sent
	d.With(func() { d.OnSend = func(s fakemqnic.Sent) { got = s } })
	soft := 0
	rapid.Check(t, func(t *rapid.T) {
		k := arbitrary(t)
		want, ip, l4 := k.bytes()
		// The headers may be longer than the device can say: bytes of the frame before IP stand for that.
		long := rapid.IntRange(0, 1).Draw(t, "long") == 1 && !k.ipv6 && k.payload <= 1200 // a frame has 1518 bytes
		l2, l3 := ip, l4-ip
		if long {
			l2, l3 = ip, 255
			grow := l2 + l3 - l4
			want = append(append(bytes.Clone(want[:l4]), make([]byte, grow)...), want[l4:]...)
			l4 += grow
		}
		sent := bytes.Clone(want)
		flag, field := ethernet.SumTCP, l4+16
		if k.udp {
			flag, field = ethernet.SumUDP, l4+6
		}
		// In the field is the sum of the pseudo header: what the right sum leaves of the segment.
		right := binary.BigEndian.Uint16(want[field:])
		sent[field], sent[field+1] = 0, 0
		pseudo := uint32(^right) + uint32(^inetsum.Of(sent[l4:]))
		for pseudo > 0xffff {
			pseudo = pseudo&0xffff + pseudo>>16
		}
		binary.BigEndian.PutUint16(sent[field:], uint16(pseudo))
		if !k.ipv6 && !long {
			flag |= ethernet.SumIPv4
			sent[ip+10] ^= 0x55
		}
		must.Give(porttest.TrySend(p.Queue(0), sent, func(f *ethernet.Frame) {
			f.Flags, f.L2, f.L3 = flag, uint8(l2), uint8(l3)
			if k.ipv6 {
				f.Flags |= ethernet.IPv6
			}
		}))(t, 1, "sent")
		if out := got.Bytes[:len(want)]; !bytes.Equal(out, want) && !(bytes.Equal(out[:field], want[:field]) && right == 0xffff) {
			t.Fatalf("%+v: sent\n%x, want\n%x", k, out, want)
		}
		must.Be(t, l2+l3 > 255, got.Command == 0, "headers of %d bytes: command %#x", l2+l3, got.Command)
		if got.Command == 0 {
			soft++
		}
	})
	should.Hold(t, soft != 0, "nothing was summed in software")
}

// TestSendSumsRefused: requests that do not fit the frame are refused.
func TestSendSumsRefused(t *testing.T) {
	_, _, p := rings(t, ethernet.Options{Offloads: ethernet.OffloadSendSum})
	for name, change := range map[string]func(f *ethernet.Frame){
		"two sums":                      func(f *ethernet.Frame) { f.Flags |= ethernet.SumUDP },
		"IPv6 with the sum of IPv4":     func(f *ethernet.Frame) { f.Flags |= ethernet.SumIPv4 | ethernet.IPv6 },
		"no Ethernet header":            func(f *ethernet.Frame) { f.L2 = 0 },
		"no IP header":                  func(f *ethernet.Frame) { f.L3 = 0 },
		"headers longer than the frame": func(f *ethernet.Frame) { f.L3 = 100 },
		"a field outside the frame":     func(f *ethernet.Frame) { f.L3 = 40 },
		"a tag":                         func(f *ethernet.Frame) { f.Flags |= ethernet.VLANTagged },
		"segments":                      func(f *ethernet.Frame) { f.Segment = 100 },
	} {
		n, err := porttest.TrySend(p.Queue(0), porttest.FrameTo(own, 60), func(f *ethernet.Frame) {
			f.Flags, f.L2, f.L3 = ethernet.SumTCP, 14, 20
			change(f)
		})
		should.Hold(t, n == 0 && errors.Is(err, ethernet.ErrBadFrame), "%s: sent %d, %v", name, n, err)
	}
}

// TestHash: flows are spread over the queues by the hash of the device, which is told.
func TestHash(t *testing.T) {
	d := newFake(t, fakemqnic.Options{})
	p := open(t, d, ethernet.Options{Queues: 4, ReceiveDescriptors: 64})
	used := map[int]bool{}
	for flow := range uint16(64) {
		for range 2 {
			b, _, _ := packet{udp: true, flow: flow, payload: 20}.bytes()
			d.Arrive(0, b)
		}
		came := 0
		for i := range 4 {
			frames, _ := porttest.ReceiveAll(t, p.Queue(i))
			if came += len(frames); len(frames) == 0 {
				continue
			}
			used[i] = true
			if f := frames[0]; len(frames) != 2 || f.Flags&ethernet.Hashed == 0 || int(f.Hash&63)%4 != i || frames[1].Hash != f.Hash {
				t.Errorf("flow %d: %+v in queue %d", flow, frames, i)
			}
		}
		must.Be(t, came, 2, "flow %d: frames came", flow)
	}
	should.Be(t, len(used), 4, "only queues %v were used", used)
	// What has no hash comes to queue 0.
	d.Arrive(0, porttest.FrameTo(own, 60))
	frames, _ := porttest.ReceiveAll(t, p.Queue(0))
	should.Hold(t, len(frames) == 1 && frames[0].Flags == 0, "%+v", frames)
}

// TestApplicationMask: an application in the card may choose the queue, within the table.
func TestApplicationMask(t *testing.T) {
	for app, want := range map[uint32]uint32{0: 0, 0x12348001: 63} {
		d := newFake(t, fakemqnic.Options{App: app})
		open(t, d, ethernet.Options{})
		d.With(func() {
			at := d.Control(0) + fakemqnic.QueueMap
			rss, mask := d.Get(at+0x14), d.Get(at+0x18)
			should.Hold(t, rss == 0 && mask == want, "application %#x: masks %#x and %#x", app, rss, mask)
		})
	}
}
