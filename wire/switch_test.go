package wire_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// switchPort is what a port of a switch can do.
type switchPort interface {
	wire.Port
	wire.Claimer
	engine.Progressive
	Stats() wire.SwitchStats
}

func newSwitch(t *testing.T, n int, o wire.SwitchOptions) (p []switchPort) {
	t.Helper()
	ports := must.Get(wire.NewSwitch(n, o))(t)
	for _, port := range ports {
		p = append(p, port.(switchPort))
	}
	return p
}

// waiting counts the frames that wait at each port, and takes them.
func waiting(ports []switchPort) []int {
	n := make([]int, len(ports))
	for i, p := range ports {
		for p.Receive() != nil {
			p.Release()
			n[i]++
		}
	}
	return n
}

func TestSwitchOptions(t *testing.T) {
	for _, n := range []int{-1, 0, 1, wire.MaxSwitchPorts + 1} {
		should.Refuse(wire.NewSwitch(n, wire.SwitchOptions{}))(t, wire.ErrOptions, "%d ports", n)
	}
	should.Refuse(wire.NewSwitch(2, wire.SwitchOptions{MemoryOptions: wire.MemoryOptions{MTU: 1}}))(t, wire.ErrOptions, "MTU 1")
	for _, d := range []time.Duration{-1, time.Microsecond, time.Hour} {
		should.Refuse(wire.NewSwitch(2, wire.SwitchOptions{Watchdog: d}))(t, wire.ErrOptions, "a watchdog of %v", d)
	}
}

func TestSwitchLearns(t *testing.T) {
	p := newSwitch(t, 4, wire.SwitchOptions{})
	check := func(what string, want ...int) {
		t.Helper()
		for i, n := range waiting(p) {
			should.Be(t, n, want[i], "%s: frames at port %d", what, i)
		}
	}
	send(p[0], frameOf(stationMAC(1), stationMAC(0), 10))
	check("to a stranger", 0, 1, 1, 1)
	send(p[1], frameOf(stationMAC(0), stationMAC(1), 10))
	check("to a known station", 1, 0, 0, 0)
	send(p[0], frameOf(stationMAC(1), stationMAC(0), 10))
	check("back", 0, 1, 0, 0)
	send(p[2], frameOf(datasheet.Broadcast, stationMAC(2), 10))
	check("to everybody", 1, 1, 0, 1)
	send(p[3], frameOf(stationMAC(1), stationMAC(0), 10)) // station 0 has moved
	check("from the new place", 0, 1, 0, 0)
	send(p[1], frameOf(stationMAC(0), stationMAC(1), 10))
	check("to the new place", 0, 0, 0, 1)
	send(p[3], frameOf(stationMAC(0), stationMAC(9), 10))
	check("to oneself", 0, 0, 0, 0)
	send(p[0], []byte{1, 2, 3})
	check("no frame at all", 0, 1, 1, 1)
}

// TestSwitchStationIsNotTakenOver: what a port has claimed is not moved, hidden or
// forgotten by what others send.
func TestSwitchStationIsNotTakenOver(t *testing.T) {
	p := newSwitch(t, 3, wire.SwitchOptions{})
	faulty := must.Get(wire.NewFault(p[0], wire.FaultOptions{}))(t)
	for range 2 { // twice is fine
		must.OK(t, faulty.(wire.Claimer).Claim(stationMAC(0)))
	}
	should.Fail(t, p[2].Claim(stationMAC(0)), wire.ErrOptions, "a second claim")
	for i := range 2000 {
		send(p[2], frameOf(stationMAC(9), stationMAC(0), 0))
		send(p[2], frameOf(stationMAC(9), datasheet.MAC{2, 7, 0, 0, byte(i >> 8), byte(i)}, 0))
		waiting(p)
	}
	send(p[1], frameOf(stationMAC(0), stationMAC(1), 0))
	should.Same(t, waiting(p), []int{1, 0, 0}, "frames for port 0")
	must.OK(t, faulty.Close())
	should.OK(t, p[2].Claim(stationMAC(0)))
}

// TestSwitchStationComesBack: a station that was heard at another port in between is
// found again at its own.
func TestSwitchStationComesBack(t *testing.T) {
	p := newSwitch(t, 3, wire.SwitchOptions{})
	for _, from := range []int{0, 2, 0} {
		send(p[from], frameOf(stationMAC(9), stationMAC(0), 0))
		waiting(p)
	}
	send(p[1], frameOf(stationMAC(0), stationMAC(1), 0))
	should.Same(t, waiting(p), []int{1, 0, 0}, "frames")
}

func TestSwitchPlugs(t *testing.T) {
	p := newSwitch(t, 3, wire.SwitchOptions{})
	told := 0
	p[0].OnLink(func() { told++ })
	p[1].SetLink(false)
	must.Hold(t, told == 1 && p[0].LinkUp() && !p[1].LinkUp(), "told %d times, links %v %v", told, p[0].LinkUp(), p[1].LinkUp())
	send(p[0], frameOf(datasheet.Broadcast, stationMAC(0), 10))
	must.Same(t, waiting(p), []int{0, 0, 1}, "frames")
	p[2].Close()
	must.Be(t, p[0].LinkUp(), false, "the link is up with nobody there")
	p[1].SetLink(true)
	send(p[0], frameOf(datasheet.Broadcast, stationMAC(0), 10))
	must.Same(t, waiting(p), []int{0, 1, 0}, "frames")
}

// TestSwitchHoldsSendersUp: a full port takes no more, and loses nothing.
func TestSwitchHoldsSendersUp(t *testing.T) {
	p := newSwitch(t, 3, wire.SwitchOptions{MemoryOptions: wire.MemoryOptions{MTU: 1000, Ring: 1}})
	sent := 0
	for send(p[0], frameOf(stationMAC(1), stationMAC(0), 900)) {
		sent++
	}
	if n := waiting(p[1:2]); n[0] != sent {
		t.Fatalf("%d sent, %d at port 1", sent, n[0])
	}
	must.Be(t, send(p[0], frameOf(stationMAC(1), stationMAC(0), 900)), false, "port 2 is full, and a frame for everybody was taken")
	p[2].SetLink(false)
	must.Be(t, send(p[0], frameOf(stationMAC(1), stationMAC(0), 900)), true, "an unplugged port holds senders up")
}

// TestSwitchReflects: what a station sends to itself comes back at the port that has claimed it, and goes nowhere else. It
// does not for a station that was only heard there.
func TestSwitchReflects(t *testing.T) {
	p := newSwitch(t, 3, wire.SwitchOptions{})
	frame := func(to, from datasheet.MAC) {
		b := p[1].Reserve(64)
		copy(b, to[:])
		copy(b[6:], from[:])
		p[1].Commit()
		p[1].Flush()
	}
	one, two := stationMAC(1), stationMAC(2)
	check := func(what string, want ...int) {
		t.Helper()
		should.Same(t, waiting(p), want, "%s: frames at the ports", what)
	}
	frame(one, two)
	check("not known", 1, 0, 1)
	frame(two, two)
	check("heard", 0, 0, 0)
	must.OK(t, p[1].Claim(one))
	frame(one, one)
	check("claimed", 0, 1, 0)
	frame(one, two)
	check("another of the port", 0, 0, 0)
	frame(datasheet.Broadcast, one)
	check("all", 1, 0, 1)
}
