package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// hostFolder has the wires of this host in a folder of the test's.
func hostFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("RUNTIME_DIRECTORY", dir)
	return filepath.Join(dir, "trapeze", "host", "w")
}

func hostStats(p wire.Port) wire.HostStats { return wire.Stats(p).(wire.HostStats) }

// joinHost makes a port of the wire "w", for a station.
func joinHost(t *testing.T, station byte) wire.Port {
	t.Helper()
	p := must.Get(wire.NewHost(wire.HostOptions{Name: "w"}))(t)
	t.Cleanup(func() {
		should.OK(t, p.Close())
	})
	must.OK(t, p.(wire.Claimer).Claim(stationMAC(station)))
	return p
}

// hosts makes n ports that know each other.
func hosts(t *testing.T, n int) (ports []wire.Port) {
	t.Helper()
	hostFolder(t)
	for i := range n {
		ports = append(ports, joinHost(t, byte(i)))
	}
	for _, p := range ports {
		hostMembers(t, p, n)
	}
	// A member's memory is there a little later than its name.
	for i, p := range ports {
		for j, q := range ports {
			hostReach(t, p, q, byte(i), byte(j))
		}
	}
	return ports
}

// hostMembers waits until a port has memory in common with n, itself included.
func hostMembers(t *testing.T, p wire.Port, n int) {
	t.Helper()
	waittest.Until(t, "all members", func() bool { return hostStats(p).Members == uint64(n) })
}

// hostReach waits until frames of p get to q.
func hostReach(t *testing.T, p, q wire.Port, from, to byte) {
	t.Helper()
	waittest.Until(t, "a frame gets to the other station", func() (came bool) {
		for send(p, frameOf(stationMAC(to), stationMAC(from), 1)); q.Receive() != nil; q.Release() {
			came = true
		}
		return came
	})
}

func TestHostOptions(t *testing.T) {
	for _, o := range []wire.HostOptions{{}, {Name: "../w"}, {Name: "a/b"}, {Name: string(make([]byte, 33))}, {Name: ".w"}, {Name: "w", MTU: 1}} {
		should.Refuse(wire.NewHost(o))(t, wire.ErrOptions, "%+v", o)
	}
}

func TestHostDelivers(t *testing.T) {
	p := hosts(t, 3)
	for i, from := range p {
		for j := range p {
			f := frameOf(stationMAC(byte(j)), stationMAC(byte(i)), 100*i+j)
			send(from, f)
			for k, at := range p {
				if k != j {
					must.Be(t, at.Receive() != nil, false, "a frame to station %d came to %d", j, k)
				} else if got := receive(at); !bytes.Equal(got, f) {
					t.Fatalf("from %d to %d: %d bytes, want %d", i, j, len(got), len(f))
				}
			}
		}
	}
	all := frameOf(datasheet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, stationMAC(0), 5)
	send(p[0], all)
	for i, at := range p {
		should.Same(t, receive(at), all, "a frame to all did not come to %d", i)
	}
	before := hostStats(p[0]).Dropped
	send(p[0], frameOf(stationMAC(9), stationMAC(0), 5))
	if got := hostStats(p[0]).Dropped; got != before+1 {
		t.Errorf("%d frames to a stranger were dropped", got-before)
	}
}

// TestHostIsQueues compares the wire with a list of frames for each pair of ports.
func TestHostIsQueues(t *testing.T) {
	p := hosts(t, 3)
	rapid.Check(t, func(t *rapid.T) {
		queues := map[[2]byte][][]byte{}
		for range rapid.IntRange(1, 40).Draw(t, "frames") {
			from, to := rapid.ByteRange(0, 2).Draw(t, "from"), rapid.ByteRange(0, 2).Draw(t, "to")
			f := frameOf(stationMAC(to), stationMAC(from), rapid.IntRange(0, 2000).Draw(t, "bytes"))
			if send(p[from], f) {
				queues[[2]byte{from, to}] = append(queues[[2]byte{from, to}], f)
			}
		}
		for to, at := range p {
			for f := at.Receive(); f != nil; f = at.Receive() {
				pair := [2]byte{f[11], byte(to)}
				if len(queues[pair]) == 0 || !bytes.Equal(queues[pair][0], f) {
					t.Fatalf("station %d got a frame of %d bytes from %d that was not next", to, len(f), f[11])
				}
				queues[pair] = queues[pair][1:]
				at.Release()
			}
		}
		for pair, left := range queues {
			must.Be(t, len(left) > 0, false, "%d frames from %d to %d did not come", len(left), pair[0], pair[1])
		}
	})
}

func TestHostLeaves(t *testing.T) {
	folder := hostFolder(t)
	a, b := joinHost(t, 1), joinHost(t, 2)
	hostMembers(t, a, 2)
	must.OK(t, b.Close())
	should.OK(t, b.Close())
	hostMembers(t, a, 1)
	again := joinHost(t, 2)
	hostMembers(t, a, 2)
	hostReach(t, a, again, 1, 2)
	if s := hostStats(a); s.Joined != 3 || s.Left != 1 { // itself, and station 2 twice
		t.Errorf("%+v", s)
	}
	// What a killed process leaves behind is no obstacle.
	dead := filepath.Join(folder, "020000000009")
	l := must.Get(net.ListenUnix("unixpacket", &net.UnixAddr{Name: dead, Net: "unixpacket"}))(t)
	l.SetUnlinkOnClose(false)
	l.Close()
	joinHost(t, 3)
	hostMembers(t, a, 3)
	should.Refuse(os.Lstat(dead))(t, os.ErrNotExist, "the socket of a dead port is still there")
}

// TestHostLeavesNothing: the last port to leave removes the folder, and others may come meanwhile.
func TestHostLeavesNothing(t *testing.T) {
	folder := hostFolder(t)
	for range 3 {
		var all sync.WaitGroup
		for n := range byte(4) {
			all.Go(func() {
				for range 5 {
					p, err := wire.NewHost(wire.HostOptions{Name: "w"})
					if err != nil {
						t.Error(err)
						return
					}
					should.OK(t, errors.Join(p.(wire.Claimer).Claim(stationMAC(n)), p.Close()))
				}
			})
		}
		all.Wait()
		should.Refuse(os.Lstat(folder))(t, os.ErrNotExist, "%s is still there", folder)
	}
}

func TestHostSameStation(t *testing.T) {
	hostFolder(t)
	joinHost(t, 1)
	p := must.Get(wire.NewHost(wire.HostOptions{Name: "w"}))(t)
	defer p.Close()
	if err := p.(wire.Claimer).Claim(stationMAC(1)); err == nil {
		t.Error("two ports have the same station")
	}
}

// TestHostStrangers connects to a port's socket and says what no port says.
func TestHostStrangers(t *testing.T) {
	folder := hostFolder(t)
	a := joinHost(t, 1)
	hello := append([]byte("TPZHW\x01"), 2, 0, 0, 0, 0, 1)
	for _, said := range [][]byte{nil, {0}, []byte("TPZHW"), hello[:11], append(hello, 0), hello, append([]byte("TPZHW\x02"), hello[6:]...), append([]byte("TPZHW\x01"), 1, 0, 0, 0, 0, 1)} {
		before := hostStats(a).Refused
		c := must.Get(net.Dial("unixpacket", filepath.Join(folder, "020000000001")))(t)
		if said != nil {
			must.Get(c.Write(said))(t)
		}
		c.Close()
		waittest.Until(t, fmt.Sprintf("%q is refused", said), func() bool { return hostStats(a).Refused > before })
	}
	should.Be(t, hostStats(a).Members, 1, "members")
}

func TestHostFolder(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("RUNTIME_DIRECTORY", dir)
	must.OK(t, errors.Join(os.Mkdir(filepath.Join(dir, "trapeze"), 0o700), os.Chmod(filepath.Join(dir, "trapeze"), 0o777)))
	p := must.Get(wire.NewHost(wire.HostOptions{Name: "w"}))(t)
	defer p.Close()
	var said *wire.Error
	if err := p.(wire.Claimer).Claim(stationMAC(1)); !errors.As(err, &said) {
		t.Errorf("a folder that others may write to: %v", err)
	}
}
