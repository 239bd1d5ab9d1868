package igb_test

import (
	"encoding/binary"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
)

// nic is a fake for the suite.
type nic struct{ *fakeigb.Device }

func (n nic) Raise() { n.With(func() { n.Interrupt(0) }) }

func (n nic) Sends(f func([]byte)) {
	n.With(func() { n.OnSend = func(s fakeigb.Sent) { f(s.Bytes) } })
}

func (n nic) StandStill() (end func()) {
	n.With(func() { end = standStill(n.Device) })
	return end
}

func TestSuite(t *testing.T) {
	porttest.Suite(t, func(t testing.TB) porttest.NIC { return nic{newFake(t, fakeigb.Options{})} })
}

// TestRemovedReadsZero: where the memory of a function that was removed reads as zero, as in
// QEMU, its configuration space tells.
func TestRemovedReadsZero(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{})
	d.With(func() {
		d.OnRead = func(o uint64, v uint32) uint32 {
			if o == fakeigb.STATUS {
				v = 0
			}
			return v
		}
	})
	should.Be(t, must.Get(p.Link())(t).Up, false)
	d.With(func() { d.GoneZero = true })
	d.Remove()
	should.Refuse(p.Link())(t, ethernet.ErrDeviceGone, "link")
	should.Refuse(p.Queue(0).Receive(make([]ethernet.Frame, 1)))(t, ethernet.ErrDeviceGone, "receive")
	if err := p.Close(); err != nil || d.Log().BackendResets != 0 {
		t.Errorf("close: %v, %d resets of what is gone", err, d.Log().BackendResets)
	}
}

// udp4 makes a frame with a UDP datagram over IPv4, its checksums right, of a flow that
// port stands for, with so many bytes of payload.
func udp4(to ethernet.MAC, port, payload int) []byte {
	b := porttest.FrameTo(to, 42+payload)
	b[12], b[13] = 8, 0
	ip, udp := b[14:34], b[34:]
	copy(ip, []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	binary.BigEndian.PutUint16(ip[2:], uint16(28+payload))
	binary.BigEndian.PutUint16(ip[10:], ^inetsum.Of(ip))
	copy(udp, make([]byte, 8))
	binary.BigEndian.PutUint16(udp, uint16(port))
	binary.BigEndian.PutUint16(udp[2:], 9)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], pseudo(ip[12:20], 17, len(udp)))
	binary.BigEndian.PutUint16(udp[6:], ^inetsum.Of(udp))
	return b
}

// pseudo is the sum of a pseudo header: two addresses, a protocol and a length.
func pseudo(addresses []byte, protocol byte, length int) uint16 {
	return inetsum.Of(append(append([]byte(nil), addresses...), 0, protocol, byte(length>>8), byte(length)))
}

// BenchmarkPort: doorbells are in mapped memory.
func BenchmarkPort(b *testing.B) {
	porttest.Benchmarks(b, func(b *testing.B, pool *ethernet.Pool) porttest.Quick {
		d := newFake(b, fakeigb.Options{Mapped: true})
		return porttest.Quick{
			Queue: open(b, d, ethernet.Options{Pool: pool}).Queue(0),
			Fill:  func(n int) { d.Fill(0, 60, n) }, Drain: func(int) { d.Drain(0) }, Refill: func(int) { d.Refill(0) },
		}
	})
}
