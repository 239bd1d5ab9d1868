package framescmd_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/bridge"
)

type relayReport struct {
	Dropped uint64
	Bridge  bridge.Counts
	Ports   []struct {
		ReceivedFrames uint64 `json:"received_frames"`
		SentFrames     uint64 `json:"sent_frames"`
	}
}

// raw makes a frame of n bytes.
func raw(to, from ethernet.MAC, seed, n int) []byte {
	b := append(append(append(make([]byte, 0, n), to[:]...), from[:]...), 0x88, 0xb6)
	for len(b) < n {
		b = append(b, byte(seed+len(b)))
	}
	return b
}

// arrives sends a frame from one peer until others have it, and another frame after it, so
// that none of the first is left: the command between may not be there yet.
func arrives(t *testing.T, frame []byte, from *peer, to ...*peer) {
	t.Helper()
	first := to[0]
	for deadline := time.Now().Add(timeout); ; {
		from.send(t, frame)
		if got := first.receive(t, 50*time.Millisecond); got != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing arrives")
		}
	}
	last := append(bytes.Clone(frame), 'l', 'a', 's', 't')
	from.send(t, last)
	for _, p := range to {
		for {
			got := p.receive(t, timeout)
			if bytes.Equal(got, last) {
				break
			}
			if !bytes.Equal(got, frame) {
				t.Fatalf("%x came instead of %x", got, frame)
			}
		}
	}
}

// TestForward passes frames of all sizes both ways.
func TestForward(t *testing.T) {
	for _, options := range []string{"", "&engine=thread"} {
		one, two := newWire()+options, newWire()+options
		x, y := newPeer(t, one), newPeer(t, two)
		forward := start(t, "forward", "--device", one, "--device", two)
		arrives(t, raw(ethernet.MAC{2, 0, 0, 0, 0, 9}, x.MAC(), 0, 60), x, y)
		sizes := []int{60, 61, 1000, 1514}
		for i := range 200 {
			n := sizes[i%len(sizes)]
			there, back := raw(y.MAC(), x.MAC(), i, n), raw(x.MAC(), y.MAC(), i+1, n)
			x.send(t, there)
			y.send(t, back)
			if got := y.receive(t, timeout); !bytes.Equal(got, there) {
				t.Fatalf("there: %x instead of %x", got, there)
			}
			if got := x.receive(t, timeout); !bytes.Equal(got, back) {
				t.Fatalf("back: %x instead of %x", got, back)
			}
		}
		forward.stop()
		var r relayReport
		forward.report(t, &r)
		if r.Dropped != 0 || r.Ports[0].SentFrames != 200 || r.Ports[1].SentFrames < 201 || r.Ports[0].ReceivedFrames != r.Ports[1].SentFrames {
			t.Errorf("%+v", r)
		}
	}
}

// TestBridge learns who is where.
func TestBridge(t *testing.T) {
	wires := []string{newWire(), newWire(), newWire()}
	args := []string{"bridge"}
	var peers []*peer
	for _, w := range wires {
		args = append(args, "--device", w)
		peers = append(peers, newPeer(t, w))
	}
	b := start(t, args...)
	all := ethernet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	mac := func(i int) ethernet.MAC { return ethernet.MAC{2, 0, 0, 0, 7, byte(i)} }
	arrives(t, raw(all, mac(0), 1, 60), peers[0], peers[1], peers[2])
	// To everybody, and from then on to one alone.
	broadcast := raw(all, mac(1), 2, 100)
	peers[1].send(t, broadcast)
	for _, i := range []int{0, 2} {
		if got := peers[i].receive(t, timeout); !bytes.Equal(got, broadcast) {
			t.Fatalf("peer %d: %x", i, got)
		}
	}
	unknown := raw(mac(2), mac(1), 3, 1514)
	peers[1].send(t, unknown)
	for _, i := range []int{0, 2} {
		if got := peers[i].receive(t, timeout); !bytes.Equal(got, unknown) {
			t.Fatalf("peer %d: %x", i, got)
		}
	}
	known := raw(mac(1), mac(2), 4, 200)
	peers[2].send(t, known)
	if got := peers[1].receive(t, timeout); !bytes.Equal(got, known) {
		t.Fatalf("%x", got)
	}
	peers[1].send(t, raw(mac(2), mac(1), 5, 300))
	peers[1].send(t, raw(mac(2), all, 6, 300)) // from a group
	if got := peers[2].receive(t, timeout); len(got) != 300 || got[20] != 25 {
		t.Fatalf("%x", got)
	}
	for i, p := range peers {
		if got := p.receive(t, 20*time.Millisecond); got != nil {
			t.Errorf("peer %d also has %x", i, got)
		}
	}
	b.stop()
	var r relayReport
	if b.report(t, &r); r.Bridge.Stations != 3 || r.Bridge.BadSources != 1 || r.Bridge.Loops != 0 || r.Dropped != 0 {
		t.Errorf("%+v", r)
	}
}

// TestBridgeLoop: two ports of the bridge are wired to each other, and nothing goes round.
// A frame that is delayed by more than bridge.HoldDown may do so once or twice.
func TestBridgeLoop(t *testing.T) {
	loop, wire := newWire(), newWire()
	p := newPeer(t, wire)
	b := startEnv(t, command.Env{}, "bridge", "--device", loop, "--device", wire, "--device", loop)
	b.ready(t)
	all := ethernet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for range 100 {
		p.send(t, raw(all, p.MAC(), 1, 60))
		p.receive(t, time.Millisecond)
	}
	for n := 1; n > 0; {
		var err error
		if n, err = p.q.Unsent(); err != nil {
			t.Fatal(err)
		}
	}
	// What the bridge sees of it is for it to say; it has time to send more than it should.
	for n := 0; n < 2000 && p.receive(t, 20*time.Millisecond) != nil; n++ {
	}
	for deadline := time.Now().Add(timeout); p.Stats().Device.SentFrames < 100; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("frames are not sent")
		}
	}
	b.stop()
	if err := b.wait(); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for _, line := range strings.Split(b.stdout.String(), "\n") {
		var received, bytes, n int
		if _, err := fmt.Sscanf(line, "received %d frames of %d bytes, sent %d of", &received, &bytes, &n); err == nil {
			sent += n
		}
	}
	if sent > 1000 || strings.Contains(b.stdout.String(), " 0 loops;") && sent > 0 {
		t.Errorf("%d frames were sent: %s", sent, b.stdout.String())
	}
}
