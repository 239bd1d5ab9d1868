package igb_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/ci/kit/qtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
)

// The tests below run the driver on QEMU's 82576. They are skipped where there is no QEMU.

// qemu is a port on QEMU's model, and the socket at the other end of its cable.
type qemu struct {
	t       testing.TB
	machine *qtest.Machine
	port    ethernet.Port
	wire    *net.UDPConn
	to      netip.AddrPort
}

func openQEMU(t testing.TB, c ethernet.Options) *qemu {
	t.Helper()
	m := qemutest.Start(t, "igb,mac=02:00:00:00:00:01")
	wire := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	t.Cleanup(func() { wire.Close() })
	must.OK(t, m.Connect(0, netip.MustParseAddrPort(wire.LocalAddr().String())))
	d := must.Get(m.Open(0))(t)
	p := must.Get(ethernet.New(contextFor(t), d, config(t, c)))(t)
	t.Cleanup(func() {
		should.OK(t, p.Close())
	})
	q := &qemu{t, m, p, wire, m.NetAddr(0)}
	q.waitLink()
	return q
}

func (q *qemu) waitLink() {
	q.t.Helper()
	link, err := ethernet.WaitLink(contextFor(q.t), q.port)
	must.Hold(q.t, err == nil && link.Speed == 1000 && link.FullDuplex, "link %+v, %v", link, err)
}

// arrive puts a frame on the wire.
func (q *qemu) arrive(b []byte) {
	q.t.Helper()
	must.Get(q.wire.WriteToUDPAddrPort(b, q.to))(q.t)
}

// left takes a frame that was sent from the wire.
func (q *qemu) left() []byte {
	q.t.Helper()
	b := make([]byte, 65536)
	q.wire.SetReadDeadline(time.Now().Add(timeout))
	n := must.Get(q.wire.Read(b))(q.t)
	return b[:n]
}

// receive waits for one frame in a queue.
func (q *qemu) receive(queue int) (ethernet.Frame, []byte) {
	q.t.Helper()
	rx, ctx := q.port.Queue(queue), contextFor(q.t)
	frames := make([]ethernet.Frame, 1)
	for {
		n := must.Get(rx.Receive(frames))(q.t)
		if n == 1 {
			b := append([]byte(nil), rx.Cache().Pool().Bytes(frames[0])...)
			rx.Cache().Free(frames)
			return frames[0], b
		}
		must.OK(q.t, rx.Wait(ctx))
	}
}

// passes says whether a frame gets through the filters: a broadcast that follows it does.
func (q *qemu) passes(b []byte) bool {
	q.t.Helper()
	q.arrive(b)
	q.arrive(porttest.FrameTo(ethernet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 99))
	_, got := q.receive(0)
	if len(got) == 99 && got[0] == 0xff {
		return false
	}
	_, last := q.receive(0)
	must.Hold(q.t, len(last) == 99 && last[0] == 0xff, "got % x, then % x", got, last)
	return true
}

func TestQEMU(t *testing.T) {
	q := openQEMU(t, ethernet.Options{ReceiveDescriptors: 64, SendDescriptors: 64})
	i := q.port.Info()
	should.Hold(t, i.MAC == own && i.Model == "82576", "info %+v", i)
	// Several times around the rings, all lengths that there are at the edges.
	count, total := uint64(0), uint64(0)
	for i := range 150 {
		n := []int{60, 61, 1513, 1514, 64 + i*9}[i%5]
		data := porttest.FrameTo(own, n)
		q.arrive(data)
		f, got := q.receive(0)
		must.Hold(t, bytes.Equal(got, data) && f.Flags == 0, "frame %d, %+v: got % x", i, f, got)
		send(t, q.port, 0, data, nil)
		must.Same(t, q.left(), data, "frame %d", i)
		count++
		total += uint64(n)
	}
	send(t, q.port, 0, porttest.FrameTo(own, 14), nil)
	if got := q.left(); len(got) < 14 || len(got) > 60 || !bytes.Equal(got[:14], porttest.FrameTo(own, 14)) {
		t.Errorf("a header alone was sent as % x", got)
	}
	waittest.Until(t, "all is sent", func() bool {
		n, err := q.port.Queue(0).Unsent()
		return n == 0 && err == nil
	})

	c := q.port.Stats()
	if qc := c.Queues[0]; qc.ReceivedFrames != count || qc.ReceivedBytes != total || qc.SentFrames != count+1 || qc.Restarts != 0 {
		t.Errorf("counted %+v", qc)
	}
	if d := c.Device; d == nil || d.ReceivedFrames != count || d.SentFrames != count+1 || d.ReceivedBytes < total {
		t.Errorf("the device counted %+v", d)
	}
}

func TestQEMUFilters(t *testing.T) {
	q := openQEMU(t, ethernet.Options{})
	porttest.Filters(t, q.port, q.passes)
}

func TestQEMURestart(t *testing.T) {
	q := openQEMU(t, ethernet.Options{ReceiveDescriptors: 64})
	group := ethernet.MAC{1, 0, 0x5e, 1, 2, 3}
	must.OK(t, q.port.SetMulticast([]ethernet.MAC{group}))
	for range 3 {
		must.OK(t, q.port.Restart(contextFor(t)))
		q.waitLink()
		should.Hold(t, q.passes(porttest.FrameTo(group, 200)), "the filter is not what it was")
		send(t, q.port, 0, porttest.FrameTo(own, 300), nil)
		should.Same(t, q.left(), porttest.FrameTo(own, 300))
	}
	should.Be(t, q.port.Stats().Restarts, 3, "counted restarts")
}

func TestQEMUJumbo(t *testing.T) {
	pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 256, Size: 9216})
	q := openQEMU(t, ethernet.Options{Pool: pool, MTU: 9000, ReceiveDescriptors: 64})
	for _, n := range []int{60, 1514, 1519, 9014} {
		data := porttest.FrameTo(own, n)
		should.Hold(t, q.passes(data), "%d bytes did not come", n)
		send(t, q.port, 0, data, nil)
		should.Same(t, q.left(), data, "%d bytes", n)
	}
	should.Hold(t, !q.passes(porttest.FrameTo(own, 9100)), "a frame longer than the MTU came")
}

func TestQEMUInterrupts(t *testing.T) {
	q := openQEMU(t, ethernet.Options{Interrupts: true, Moderation: 100 * time.Microsecond})
	must.Be(t, q.port.Info().Vectors, 1, "vectors")
	for i := range 50 {
		go func() {
			time.Sleep(time.Duration(i%10) * time.Millisecond)
			_, _ = q.wire.WriteToUDPAddrPort(porttest.FrameTo(own, 60+i), q.to)
		}()
		_, got := q.receive(0)
		must.Hold(t, len(got) == 60+i, "frame %d has %d bytes", i, len(got))
	}
	n := q.port.Stats().Queues[0].Interrupts
	should.Hold(t, n >= 5, "%d interrupts", n)
}

// TestQEMUQueues has flows spread over four queues, each frame of a flow in the same, and
// what is not IP in queue 0.
func TestQEMUQueues(t *testing.T) {
	q := openQEMU(t, ethernet.Options{Queues: 4, ReceiveDescriptors: 64})
	used := map[int]int{}
	for flow := range 24 {
		queue := -1
		for range 3 {
			q.arrive(udp4(own, 1000+flow, 40))
			at, f := q.anywhere()
			should.Hold(t, f.Flags&ethernet.Hashed != 0 && int(f.Hash)&127%4 == at, "hash %#x in queue %d", f.Hash, at)
			should.Hold(t, queue < 0 || at == queue, "flow %d is in queues %d and %d", flow, queue, at)
			queue = at
		}
		used[queue]++
	}
	should.Be(t, len(used), 4, "queues in use: %v", used)
	q.arrive(porttest.FrameTo(own, 60))
	at, f := q.anywhere()
	should.Hold(t, at == 0 && f.Flags&ethernet.Hashed == 0, "a frame that is not IP is in queue %d, %+v", at, f)
	for i := range 4 {
		send(t, q.port, i, porttest.FrameTo(own, 100+i), nil)
		got := q.left()
		should.Hold(t, len(got) == 100+i, "queue %d sent % x", i, got)
	}
}

// anywhere waits for a frame in any queue.
func (q *qemu) anywhere() (int, ethernet.Frame) {
	q.t.Helper()
	frames := make([]ethernet.Frame, 1)
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		for i := range q.port.Info().Options.Queues {
			n := must.Get(q.port.Queue(i).Receive(frames))(q.t)
			if n == 1 {
				q.port.Queue(i).Cache().Free(frames)
				return i, frames[0]
			}
		}
	}
	q.t.Fatal("no frame came")
	return 0, ethernet.Frame{}
}

func TestQEMUOffloads(t *testing.T) {
	q := openQEMU(t, ethernet.Options{Offloads: ethernet.OffloadAll})
	good := udp4(own, 7, 100)
	q.arrive(good)
	f, _ := q.receive(0)
	should.Be(t, f.Flags, ethernet.IPSumGood|ethernet.L4SumGood|ethernet.Hashed, "flags")
	bad := append([]byte(nil), good...)
	bad[24]++ // of the header's checksum
	bad[60]++
	q.arrive(bad)
	f, _ = q.receive(0)
	should.Hold(t, f.Flags&(ethernet.IPSumBad|ethernet.L4SumBad) == ethernet.IPSumBad|ethernet.L4SumBad, "flags %#x of bad sums", f.Flags)

	// Tags.
	tagged := append(append(append([]byte(nil), good[:12]...), 0x81, 0, 0x20, 5), good[12:]...)
	q.arrive(tagged)
	f, got := q.receive(0)
	should.Hold(t, f.Flags&ethernet.VLANTagged != 0 && f.VLAN == 0x2005 && bytes.Equal(got, good), "%+v: % x", f, got)
	send(t, q.port, 0, good, func(f *ethernet.Frame) { f.Flags, f.VLAN = ethernet.VLANTagged, 0x2005 })
	should.Same(t, q.left(), tagged)

	// Checksums that the device computes.
	blank := append([]byte(nil), good...)
	blank[24], blank[25] = 0, 0
	binary.BigEndian.PutUint16(blank[40:], pseudo(blank[26:34], 17, len(blank)-34))
	send(t, q.port, 0, blank, func(f *ethernet.Frame) { f.Flags, f.L2, f.L3 = ethernet.SumIPv4|ethernet.SumUDP, 14, 20 })
	should.Same(t, q.left(), good)
}

// TestQEMUSegments has a long TCP segment cut into frames.
func TestQEMUSegments(t *testing.T) {
	pool := porttest.NewPool(t, ethernet.PoolOptions{Size: 16384, Buffers: 256})
	q := openQEMU(t, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, Offloads: ethernet.OffloadAll})
	const payload, segment = 10000, 1400
	b := make([]byte, 54+payload)
	copy(b, udp4(own, 7, 40)[:34])
	binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
	b[23] = 6 // TCP
	b[34+12], b[34+13] = 5<<4, 0x18
	for i := range payload {
		b[54+i] = byte(i * 3)
	}
	binary.BigEndian.PutUint16(b[24:], 0)
	binary.BigEndian.PutUint16(b[50:], pseudo(b[26:34], 6, len(b)-34))
	send(t, q.port, 0, b, func(f *ethernet.Frame) {
		f.Flags, f.L2, f.L3, f.L4, f.Segment = ethernet.SumIPv4|ethernet.SumTCP, 14, 20, 20, segment
	})
	var all []byte
	for len(all) < payload {
		got := q.left()
		if len(got) > 54+segment || inetsum.Of(got[14:34]) != 0xffff || binary.BigEndian.Uint16(got[16:]) != uint16(len(got)-14) {
			t.Fatalf("a frame of %d bytes, % x", len(got), got[:54])
		}
		must.Be(t, binary.BigEndian.Uint32(got[38:]), uint32(len(all)), "sequence number, want %d", len(all))
		with := append(append([]byte(nil), got[26:34]...), 0, 6, byte((len(got)-34)>>8), byte(len(got)-34))
		should.Be(t, inetsum.Of(append(with, got[34:]...)), 0xffff, "the TCP checksum of a segment is wrong")
		all = append(all, got[54:]...)
	}
	should.Same(t, all, b[54:], "the payload is another")
}

func TestQEMULink(t *testing.T) {
	q := openQEMU(t, ethernet.Options{})
	for range 3 {
		must.OK(t, q.machine.SetLink(0, false))
		should.Be(t, must.Get(q.port.Link())(t).Up, false)
		must.OK(t, q.machine.SetLink(0, true))
		q.waitLink()
		should.Hold(t, q.passes(porttest.FrameTo(own, 80)), "no frame after the link was down")
	}
}

func TestQEMURemoved(t *testing.T) {
	q := openQEMU(t, ethernet.Options{})
	must.OK(t, q.machine.Unplug(0))
	should.Refuse(q.port.Link())(t, ethernet.ErrDeviceGone, "link")
	should.Refuse(q.port.Queue(0).Receive(make([]ethernet.Frame, 1)))(t, ethernet.ErrDeviceGone, "receive")
}
