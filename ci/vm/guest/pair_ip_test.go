package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
)

// Where things are in frames (RFC 826, 791, 792, 768).
const (
	ipv4At       = ethernet.HeaderSize
	protocolICMP = 1
	protocolUDP  = 17
)

// reply makes an answer of an ARP request for addresses that end in .1, and of an ICMP echo
// request, in its place. Tags may stand before.
func reply(b []byte, own ethernet.MAC) bool {
	at := ethernet.HeaderSize
	if len(b) >= at+4 && binary.BigEndian.Uint16(b[12:]) == 0x8100 {
		at += ethernet.TagSize
	}
	if len(b) < at+28 {
		return false
	}
	p := b[at:]
	switch binary.BigEndian.Uint16(b[at-2:]) {
	case 0x0806: // ARP: who has the target's address?
		if p[7] != 1 || p[27] != 1 {
			return false
		}
		p[7] = 2
		var asker [10]byte
		copy(asker[:], p[8:18])
		copy(p[14:], p[24:28])
		copy(p[8:], own[:])
		copy(p[14:18], p[24:28])
		copy(p[18:], asker[:])
	case 0x0800:
		if p[0] != 0x45 || p[9] != protocolICMP || p[20] != 8 {
			return false
		}
		for i := range 4 {
			p[12+i], p[16+i] = p[16+i], p[12+i]
		}
		p[20] = 0
		end := min(len(p), int(binary.BigEndian.Uint16(p[2:])))
		p[22], p[23] = 0, 0
		binary.BigEndian.PutUint16(p[22:], ^inetsum.Of(p[20:end]))
	default:
		return false
	}
	copy(b, b[6:12])
	copy(b[6:], own[:])
	return true
}

// answer answers ARP and echo requests at a port, and has see look at all that comes.
func answer(t *testing.T, p ethernet.Port, see func(f *ethernet.Frame, b []byte)) *worker {
	t.Helper()
	own := p.MAC()
	return work(t, p.Queue(0), func(f *ethernet.Frame, b []byte) bool {
		if see != nil {
			see(f, b)
		}
		return reply(b, own)
	})
}

// ping is tryPing that fails the test if not all requests are answered.
func (l *peer) ping(address string, sizes []int) {
	l.t.Helper()
	must.OK(l.t, l.tryPing(address, sizes))
}

// tryPing sends echo requests with payloads of so many bytes, a few at a time, and compares
// what comes back. It fails if not all are answered within a minute.
func (l *peer) tryPing(address string, sizes []int) error {
	l.t.Helper()
	fd := l.socket(unix.AF_INET, unix.SOCK_RAW, protocolICMP)
	const under, identifier = 8, 0x7a7a
	to := &unix.SockaddrInet4{Addr: netip.MustParseAddr(address).As4()}
	payload := func(i int) []byte {
		b := make([]byte, 8+sizes[i])
		b[0] = 8
		binary.BigEndian.PutUint16(b[4:], identifier)
		binary.BigEndian.PutUint16(b[6:], uint16(i))
		for j := 8; j < len(b); j++ {
			b[j] = byte(i + j*7)
		}
		binary.BigEndian.PutUint16(b[2:], ^inetsum.Of(b))
		return b
	}
	sent, come := 0, make([]bool, len(sizes))
	in := make([]byte, 1<<16)
	end := time.Now().Add(time.Minute)
	for got := 0; got < len(sizes); {
		if time.Now().After(end) {
			return fmt.Errorf("%s has answered %d of %d echo requests", address, got, sent)
		}
		for ; sent < len(sizes) && sent-got < under; sent++ {
			must.OK(l.t, unix.Sendto(fd, payload(sent), 0, to), "%d bytes", sizes[sent])
		}
		n, err := unix.Read(fd, in)
		if again(err) {
			continue
		}
		must.OK(l.t, err)
		b := in[min(20, n):n]
		if len(b) < 8 || b[0] != 0 || binary.BigEndian.Uint16(b[4:]) != identifier {
			continue
		}
		i := int(binary.BigEndian.Uint16(b[6:]))
		if i >= sent || come[i] || !bytes.Equal(b[8:], payload(i)[8:]) {
			l.t.Fatalf("a wrong answer of %d bytes to request %d", len(b), i)
		}
		come[i] = true
		got++
	}
	return nil
}

// TestPairPing: Linux asks for our address, and sends echo requests of all sizes.
func TestPairPing(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		l := p.linux(t)
		port := p.open(t, ethernet.Options{})
		var asked atomic.Uint32
		w := answer(t, port, func(_ *ethernet.Frame, b []byte) {
			if bytes.Equal(b[12:14], []byte{8, 6}) {
				asked.Add(1)
			}
		})
		if err := l.tryPing(ourIP, sequence(1472, 1)); err != nil {
			t.Fatal(errors.Join(err, w.end())) // the port may know why
		}
		should.Hold(t, asked.Load() != 0, "Linux has not asked for our address")
	})
}

// TestPairOthers: other NICs that Linux drives talk to ours.
func TestPairOthers(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		p.onlyIGB(t) // the hub of the others
		port := p.open(t, ethernet.Options{})
		answer(t, port, nil)
		for _, other := range []struct{ id, driver string }{{"0x8086 0x10d3", "e1000e"}, {"0x15ad 0x07b0", "vmxnet3"}} {
			t.Run(other.driver, func(t *testing.T) {
				load(t, other.driver)
				l := newPeer(t, find(t, other.id)[0], other.driver)
				l.ping(ourIP, sequence(1472, 16))
			})
		}
	})
}

// TestPairVLAN has Linux put tags into frames (its module 8021q).
func TestPairVLAN(t *testing.T) {
	const tag = 5
	test := func(t *testing.T, p pair, offloads ethernet.Offloads) {
		load(t, "8021q")
		l := p.linux(t)
		l.run("ip", "link", "add", "link", l.name, "name", "v5", "type", "vlan", "id", strconv.Itoa(tag))
		l.run("ip", "addr", "add", "10.7.5.2/24", "dev", "v5")
		l.run("ip", "link", "set", "v5", "up")
		port := p.open(t, ethernet.Options{Offloads: offloads})
		var mu sync.Mutex
		seen := map[uint16]int{}
		answer(t, port, func(f *ethernet.Frame, b []byte) {
			id := uint16(0)
			if f.Flags&ethernet.VLANTagged != 0 {
				id = f.VLAN & 0xfff
			}
			if binary.BigEndian.Uint16(b[12:]) == 0x8100 {
				if offloads&ethernet.OffloadVLAN != 0 {
					id += 0x1000 // a tag that should have been taken out
				} else {
					id = binary.BigEndian.Uint16(b[14:]) & 0xfff
				}
			}
			mu.Lock()
			seen[id]++
			mu.Unlock()
		})
		count := func(id uint16) int {
			mu.Lock()
			defer mu.Unlock()
			return seen[id]
		}
		fd := l.packets(rawType)
		other := func() { // a frame of another VLAN
			b := make([]byte, 60)
			to := port.MAC()
			copy(b, to[:])
			copy(b[6:], l.mac[:])
			copy(b[12:], []byte{0x81, 0, 0, 6, 0x88, 0xb5})
			must.Get(unix.Write(fd, b))(t)
		}
		other()
		l.ping("10.7.5.1", sequence(1472, 32))
		l.ping(ourIP, sequence(1472, 256))
		should.Hold(t, count(tag) >= 47 && count(0) >= 6 && count(6) == 1 && len(seen) == 3, "frames by VLAN: %v", seen)
		err := port.SetVLANs([]uint16{tag})
		if p.id != igbID {
			should.Hold(t, err != nil, "virtio filters VLANs without saying that it can")
			return
		}
		must.OK(t, err)
		other()
		l.ping("10.7.5.1", sequence(1472, 256))
		l.ping(ourIP, []int{100})
		should.Be(t, count(6), 1, "frames by VLAN after filtering: %v", seen)
	}
	eachPair(t, func(t *testing.T, p pair) {
		t.Run("tags in frames", func(t *testing.T) { test(t, p, 0) })
		if p.id == igbID {
			t.Run("tags taken out", func(t *testing.T) { test(t, p, ethernet.OffloadVLAN) })
		}
	})
}

// TestPairJumbo exchanges frames of up to 9000 bytes of payload.
func TestPairJumbo(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		l := p.linux(t)
		l.run("ip", "link", "set", l.name, "mtu", "9000")
		port := p.open(t, ethernet.Options{Pool: jumboPool(t), MTU: 9000, ReceiveDescriptors: 64, SendDescriptors: 64})
		answer(t, port, nil)
		l.ping(ourIP, []int{0, 1472, 1473, 2019, 2020, 4054, 4055, 8971, 8972})
		c := port.Stats().Queues[0]
		should.Hold(t, c.BadLengths+c.Unended+c.ReceiveErrors == 0, "counted %+v", c)
	})
}

// udp makes a frame with a UDP datagram for the port, whose sums are right.
func udp(to, from ethernet.MAC, toIP, fromIP string, port uint16, payload []byte) []byte {
	b := make([]byte, ipv4At+28+len(payload))
	copy(b, to[:])
	copy(b[6:], from[:])
	b[12] = 8
	p := b[ipv4At:]
	copy(p, []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocolUDP})
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	copy(p[12:], netip.MustParseAddr(fromIP).AsSlice())
	copy(p[16:], netip.MustParseAddr(toIP).AsSlice())
	binary.BigEndian.PutUint16(p[10:], ^inetsum.Of(p[:20]))
	binary.BigEndian.PutUint16(p[20:], 1000)
	binary.BigEndian.PutUint16(p[22:], port)
	binary.BigEndian.PutUint16(p[24:], uint16(len(p)-20))
	copy(p[28:], payload)
	binary.BigEndian.PutUint16(p[26:], ^inetsum.Of(append(pseudo(p), p[20:]...)))
	return b
}

// pseudo is what UDP's sum is of besides UDP (RFC 768).
func pseudo(p []byte) []byte {
	return append(append([]byte(nil), p[12:20]...), 0, p[9], p[24], p[25])
}

// TestPairSums makes both sides send right and wrong checksums. The 82576 judges them; virtio
// leaves that to who receives, but what Linux sends must have its sums.
func TestPairSums(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		igb := p.id == igbID
		var offloads ethernet.Offloads
		if igb {
			offloads = ethernet.OffloadReceiveSum | ethernet.OffloadSendSum
		}
		l := p.linux(t)
		port := p.open(t, ethernet.Options{Offloads: offloads})
		l.knows(port.MAC())
		q := port.Queue(0)
		const verdicts = ethernet.IPSumGood | ethernet.IPSumBad | ethernet.L4SumGood | ethernet.L4SumBad
		// next is the verdict on the next UDP datagram, and whether the sums are right.
		next := func() (ethernet.Flags, bool) {
			frames, ctx := make([]ethernet.Frame, 1), within(t)
			for {
				n, err := q.Receive(frames)
				if err == nil && n == 0 {
					err = q.Wait(ctx)
				}
				must.OK(t, err)
				if n == 0 {
					continue
				}
				b := bytes.Clone(q.Cache().Pool().Bytes(frames[0]))
				q.Cache().Free(frames)
				if len(b) < ipv4At+28 || b[12] != 8 || b[13] != 0 || b[ipv4At+9] != protocolUDP {
					continue
				}
				d := b[ipv4At:]
				d = d[:min(len(d), int(binary.BigEndian.Uint16(d[2:])))]
				return frames[0].Flags & verdicts, inetsum.Of(d[:20]) == 0xffff && inetsum.Of(append(pseudo(d), d[20:]...)) == 0xffff
			}
		}
		fd := l.packets(rawType)
		payload := bytes.Repeat([]byte("trapeze "), 20)
		for _, tt := range []struct {
			name   string
			change int // of which byte
			want   ethernet.Flags
		}{
			{"right", -1, ethernet.IPSumGood | ethernet.L4SumGood},
			{"a wrong header", ipv4At + 8, ethernet.IPSumBad | ethernet.L4SumGood},
			{"a wrong datagram", ipv4At + 40, ethernet.IPSumGood | ethernet.L4SumBad},
		} {
			b := udp(port.MAC(), l.mac, ourIP, theirIP, 7, payload)
			if tt.change >= 0 {
				b[tt.change] ^= 0x10
			}
			must.Get(unix.Write(fd, b))(t)
			got, right := next()
			should.Be(t, right, tt.change < 0, "%s: the sums are right", tt.name)
			if !igb {
				tt.want = 0
			}
			should.Be(t, got, tt.want, "%s: verdict", tt.name)
		}
		// Linux leaves the sum to its own NIC.
		s := l.socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		must.OK(t, unix.Sendto(s, payload, 0, &unix.SockaddrInet4{Port: 7, Addr: netip.MustParseAddr(ourIP).As4()}))
		if _, right := next(); !right {
			t.Error("what Linux sends has a wrong sum")
		}

		// To Linux, which counts what it drops.
		in := l.socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		must.OK(t, unix.Bind(in, &unix.SockaddrInet4{Port: 77}))
		received := func(b []byte, change func(*ethernet.Frame)) bool {
			frames := make([]ethernet.Frame, 1)
			q.Cache().Alloc(frames)
			frames[0].Length = uint16(len(b))
			copy(q.Cache().Pool().Bytes(frames[0]), b)
			if change != nil {
				change(&frames[0])
			}
			before := l.badSums()
			must.Give(q.Send(frames))(t, 1)
			got, come := make([]byte, 2048), false
			waittest.Until(t, "Linux has taken or dropped it", func() bool {
				n, err := unix.Read(in, got)
				come = err == nil && bytes.Equal(got[:n], payload)
				return come || l.badSums() > before
			})
			return come
		}
		right := udp(l.mac, port.MAC(), theirIP, ourIP, 77, payload)
		header, datagram := bytes.Clone(right), bytes.Clone(right)
		header[ipv4At+8]--
		datagram[ipv4At+60] ^= 1
		should.Hold(t, received(right, nil) && !received(header, nil) && !received(datagram, nil), "Linux takes wrong sums, or does not take right ones")
		if igb {
			blank := bytes.Clone(right)
			d := blank[ipv4At:]
			copy(d[10:12], []byte{0, 0})
			binary.BigEndian.PutUint16(d[26:], inetsum.Of(pseudo(d)))
			if !received(blank, func(f *ethernet.Frame) { f.Flags, f.L2, f.L3 = ethernet.SumIPv4|ethernet.SumUDP, ipv4At, 20 }) {
				t.Error("Linux does not take the sums that the NIC computes")
			}
		}
	})
}

// badSums is how many packets Linux has dropped because of their IP header or UDP's sum.
func (l *peer) badSums() (n int) {
	var names []string
	for _, line := range strings.Split(l.run("cat", "/proc/net/snmp"), "\n") {
		words := strings.Fields(line)
		if len(names) > 0 && len(words) == len(names) && words[0] == names[0] {
			for i, name := range names {
				if words[0] == "Ip:" && name == "InHdrErrors" || words[0] == "Udp:" && name == "InCsumErrors" {
					v, _ := strconv.Atoi(words[i])
					n += v
				}
			}
		}
		names = words
	}
	return n
}

// TestPairSpread makes Linux send many flows, which four queues share: each flow is in one.
func TestPairSpread(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		p.onlyIGB(t) // a hub's virtio has one queue
		const queues, flows, each = 4, 32, 8
		l := p.linux(t)
		port := p.open(t, ethernet.Options{Queues: queues, ReceiveDescriptors: 128, SendDescriptors: 64})
		l.knows(port.MAC())
		var mu sync.Mutex
		got := map[uint16]map[int]int{} // by the sender's port: frames by queue
		total := 0
		for i := range queues {
			work(t, port.Queue(i), func(f *ethernet.Frame, b []byte) bool {
				mu.Lock()
				defer mu.Unlock()
				if b[12] == 8 && b[13] == 0 && b[ipv4At+9] == protocolUDP {
					from := binary.BigEndian.Uint16(b[ipv4At+20:])
					if got[from] == nil {
						got[from] = map[int]int{}
					}
					got[from][i]++
					total++
				}
				return false
			})
		}
		for i := range flows {
			fd := l.socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			must.OK(t, unix.Bind(fd, &unix.SockaddrInet4{Port: 2000 + i}))
			for range each {
				must.OK(t, unix.Sendto(fd, []byte("flow"), 0, &unix.SockaddrInet4{Port: 7, Addr: netip.MustParseAddr(ourIP).As4()}))
			}
		}
		waittest.Until(t, "all frames come", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return total == flows*each
		})
		used := map[int]int{}
		for from, by := range got {
			should.Be(t, len(by), 1, "the flow from port %d is in queues %v", from, by)
			for queue := range by {
				used[queue]++
			}
		}
		should.Hold(t, len(used) == queues && len(got) == flows, "%d flows, by queue %v", len(got), used)
		t.Logf("flows by queue: %v", used)
	})
}
