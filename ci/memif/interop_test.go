package memif_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/testpmd"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
	"github.com/trapeze-nic/trapeze/wire"
)

// other is the role of testpmd.
func other(r wire.MemifRole) string { return (wire.MemifClient + wire.MemifServer - r).String() }

// pmdMAC is the address that testpmd's memif is given.
const pmdMAC = "02:00:00:00:00:cc"

// memifDevice describes testpmd's end of a memif.
func memifDevice(number int, role wire.MemifRole, socket, more string) string {
	where := "socket=" + socket + ",socket-abstract=no"
	if name, ok := strings.CutPrefix(socket, "@"); ok {
		where = "socket=" + name + ",socket-abstract=yes"
	}
	return fmt.Sprintf("net_memif%d,role=%s,%s,mac=%s%s", number, other(role), where, pmdMAC, more)
}

// variants are the connections that frames go through.
var variants = []struct {
	name     string
	options  wire.MemifOptions
	device   string // more options of testpmd's end
	abstract bool
	queues   int
	frames   int
	most     int // size of the largest frame
}{
	{name: "client", options: wire.MemifOptions{Role: wire.MemifClient, Ring: 8192}, frames: 5000, most: 2048},
	{name: "server", options: wire.MemifOptions{Role: wire.MemifServer}, device: ",rsize=13", frames: 5000, most: 2048},
	{name: "client, abstract socket, secret, id", options: wire.MemifOptions{Role: wire.MemifClient, ID: 7, Secret: "open sesame"},
		device: ",id=7,secret=open sesame", abstract: true, frames: 900, most: 1518},
	{name: "server, abstract socket, secret, id", options: wire.MemifOptions{Role: wire.MemifServer, ID: 7, Secret: "open sesame"},
		device: ",id=7,secret=open sesame", abstract: true, frames: 900, most: 1518},
	{name: "client, three rings", options: wire.MemifOptions{Role: wire.MemifClient, Ring: 4096, Queues: 3}, queues: 3, frames: 2500, most: 1518},
	{name: "server, three rings", options: wire.MemifOptions{Role: wire.MemifServer}, device: ",rsize=12", queues: 3, frames: 2500, most: 1518},
	{name: "client, frames of several buffers", options: wire.MemifOptions{Role: wire.MemifClient, Ring: 8192, MTU: 9018}, frames: 1000, most: 9018},
	{name: "server, frames of several buffers", options: wire.MemifOptions{Role: wire.MemifServer, MTU: 9018}, device: ",rsize=13,bsize=1024", frames: 500, most: 9018},
	{name: "client, smallest rings", options: wire.MemifOptions{Role: wire.MemifClient, Ring: 2}, frames: 2, most: 2048},
	{name: "server, largest rings", options: wire.MemifOptions{Role: wire.MemifServer}, device: ",rsize=14", frames: 5000, most: 2048},
}

// forEach runs a test for each variant.
func forEach(t *testing.T, run func(t *testing.T, p *wire.Memif, device string, queues, frames, most int)) {
	needsTestpmd(t)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			v.options.Socket = socketPath(t)
			if v.abstract {
				v.options.Socket = abstractName(v.options.Socket)
			}
			if v.options.MTU == 0 {
				v.options.MTU = v.most
			}
			p := newPort(t, v.options)
			run(t, p, memifDevice(0, v.options.Role, v.options.Socket, v.device), max(1, v.queues), v.frames, v.most)
		})
	}
}

// TestPcapFiles has testpmd write what we send into a file, and send what is in
// another: every byte of every frame, in the order of each ring.
func TestPcapFiles(t *testing.T) {
	forEach(t, func(t *testing.T, p *wire.Memif, device string, queues, n, most int) {
		dir := filepath.Dir(socketPath(t)) // no comma in it, which would end an option
		frames := makeFrames(n, most)
		pcap := "net_pcap0"
		var outs []string
		for q := range queues {
			in, out := filepath.Join(dir, fmt.Sprint("in", q)), filepath.Join(dir, fmt.Sprint("out", q))
			writePcap(t, in, share(frames, q, queues))
			outs = append(outs, out)
			pcap += ",rx_pcap=" + in + ",tx_pcap=" + out
		}
		pmd := testpmd.Start(t, p.LinkUp, testpmd.Options{Devices: []string{device, pcap}, Mode: "io", Queues: queues})
		got := receiveAll(t, p, n)
		for q := range queues {
			wantFrames(t, fmt.Sprintf("from file %d", q), sharedOut(got, q, queues), share(frames, q, queues))
		}

		count := func() (n int) {
			for _, out := range outs {
				n += len(readPcap(t, out))
			}
			return n
		}
		// In pieces: with nothing under way, what comes next goes into the next
		// ring.
		for done := 0; done < n; {
			piece := frames[done:min(done+max(n/8, 1), n)]
			sendAll(t, p, piece)
			done += len(piece)
			pmd.Await("frames in the file", func() bool { return count() >= done })
		}
		pmd.Quit()
		var all [][]byte
		used := 0
		for _, out := range outs {
			frames := readPcap(t, out)
			for i := range frames {
				if i > 0 && numberOf(frames[i]) <= numberOf(frames[i-1]) {
					t.Errorf("%s: frame %d after %d", filepath.Base(out), numberOf(frames[i]), numberOf(frames[i-1]))
				}
			}
			if len(frames) > 0 {
				used++
			}
			all = append(all, frames...)
		}
		if queues == 1 {
			wantFrames(t, "into the file", all, frames)
		} else {
			wantFrames(t, "into all files", byNumber(all), frames)
			should.Be(t, used, queues, "rings were used")
		}
		p.Receive() // what was received is counted
		if s := p.Stats(); s.Lost+s.TooLong+s.Violations+s.Malformed+s.BadMemory != 0 || s.Guarded ||
			s.FramesSent != uint64(n) || s.FramesReceived != uint64(n) || !strings.Contains(s.PeerName, "DPDK") {
			t.Errorf("stats %+v", s)
		}
	})
}

// share returns the frames whose number belongs to queue q.
func share(frames [][]byte, q, queues int) (part [][]byte) {
	for i := q; i < len(frames); i += queues {
		part = append(part, frames[i])
	}
	return part
}

// sharedOut returns the frames of queue q in the order in which they came.
func sharedOut(frames [][]byte, q, queues int) (part [][]byte) {
	for _, f := range frames {
		if numberOf(f)%queues == q {
			part = append(part, f)
		}
	}
	return part
}

// byNumber puts frames where they belong; what is there twice is lost.
func byNumber(frames [][]byte) [][]byte {
	sorted := make([][]byte, len(frames))
	for _, f := range frames {
		if n := numberOf(f); n >= 0 && n < len(sorted) {
			sorted[n] = f
		}
	}
	return sorted
}

// TestEcho has testpmd send everything back, as it is and changed.
func TestEcho(t *testing.T) {
	needsTestpmd(t)
	mac := []byte{2, 0, 0, 0, 0, 0xcc}
	modes := map[string]func(f []byte){
		"io": func([]byte) {},
		// To testpmd's idea of the peer of port 0, from itself.
		"mac": func(f []byte) {
			copy(f, []byte{2, 0, 0, 0, 0, 0})
			copy(f[6:], mac)
		},
		"macswap": func(f []byte) { swap(f[:6], f[6:12]) },
		"5tswap": func(f []byte) {
			swap(f[:6], f[6:12])
			swap(f[frameIP+12:frameIP+16], f[frameIP+16:frameIP+20])
			swap(f[frameUDP:frameUDP+2], f[frameUDP+2:frameUDP+4])
		},
	}
	for _, role := range []wire.MemifRole{wire.MemifClient, wire.MemifServer} {
		for mode, change := range modes {
			t.Run(fmt.Sprintf("we are the %s, %s", role, mode), func(t *testing.T) {
				socket := socketPath(t)
				p := newPort(t, wire.MemifOptions{Role: role, Socket: socket})
				pmd := testpmd.Start(t, p.LinkUp, testpmd.Options{Devices: []string{memifDevice(0, role, socket, "")}, Mode: mode})
				frames := makeFrames(6000, 2048)
				for done := 0; done < len(frames); {
					// testpmd drops what it has no room for.
					batch := frames[done:min(done+300, len(frames))]
					sendAll(t, p, batch)
					want := make([][]byte, len(batch))
					for i, f := range batch {
						want[i] = bytes.Clone(f)
						change(want[i])
					}
					wantFrames(t, mode, receiveAll(t, p, len(batch)), want)
					done += len(batch)
				}
				pmd.Quit()
			})
		}
	}
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}

// TestTransmitOnly receives what testpmd makes up: thousands of frames of 64
// and 1500 bytes that are all the same, and sound.
func TestTransmitOnly(t *testing.T) {
	needsTestpmd(t)
	for _, role := range []wire.MemifRole{wire.MemifClient, wire.MemifServer} {
		for _, size := range []int{64, 1500} {
			t.Run(fmt.Sprintf("we are the %s, %d bytes", role, size), func(t *testing.T) {
				socket := socketPath(t)
				p := newPort(t, wire.MemifOptions{Role: role, Socket: socket})
				testpmd.Start(t, p.LinkUp, testpmd.Options{Devices: []string{memifDevice(0, role, socket, "")}, Mode: "txonly",
					More: []string{fmt.Sprintf("--txpkts=%d", size)}})
				frames := receiveAll(t, p, 20000)
				first := frames[0]
				if len(first) != size || !bytes.Equal(first[6:12], []byte{2, 0, 0, 0, 0, 0xcc}) ||
					!bytes.Equal(first[frameType:frameIP+1], []byte{8, 0, 0x45}) || inetsum.Of(first[frameIP:frameUDP]) != 0xffff {
					t.Errorf("frame % x", first[:min(len(first), framePayload)])
				}
				for i, f := range frames {
					must.Same(t, f, first, "frame %d", i)
				}
			})
		}
	}
}

// TestReceiveOnly has testpmd count what we send.
func TestReceiveOnly(t *testing.T) {
	forEach(t, func(t *testing.T, p *wire.Memif, device string, queues, n, most int) {
		pmd := testpmd.Start(t, p.LinkUp, testpmd.Options{Devices: []string{device}, Mode: "rxonly", Queues: queues})
		frames := makeFrames(4000, most)
		bytes := 0
		for _, f := range frames {
			bytes += len(f)
		}
		sendAll(t, p, frames)
		pmd.Await("testpmd to count the frames", func() bool { return pmd.Statistic(0, "RX-packets") >= len(frames) })
		if packets, got := pmd.Statistic(0, "RX-packets"), pmd.Statistic(0, "RX-bytes"); packets != len(frames) || got != bytes {
			t.Errorf("testpmd has counted %d frames with %d bytes, want %d with %d", packets, got, len(frames), bytes)
		}
		pmd.Quit()
	})
}
