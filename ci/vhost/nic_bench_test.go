package vhost_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/testpmd"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// BenchmarkNICs compares wires: a message of 64 bytes of VIA, one way, between two NICs of
// this process whose frames testpmd carries, over ports of vhost-user and over memifs. The
// engines run inline on one processor and testpmd on another, in turns; the best slice of
// each counts. Frames over vhost-user carry a checksum, those over a memif do not.
func BenchmarkNICs(b *testing.B) {
	needsTestpmd(b)
	if runtime.NumCPU() < 2 {
		b.Skip("needs two processors")
	}
	var split, packed, memif time.Duration
	for b.Loop() {
		for range rounds {
			split = least(split, vhostLatency(b, "split"))
			packed = least(packed, vhostLatency(b, "packed"))
			memif = least(memif, memifLatency(b))
		}
	}
	b.ReportMetric(float64(split.Nanoseconds()), "split-ns/one-way")
	b.ReportMetric(float64(packed.Nanoseconds()), "packed-ns/one-way")
	b.ReportMetric(float64(memif.Nanoseconds()), "memif-ns/one-way")
	b.ReportMetric(float64(packed)/float64(memif), "ratio")
	b.ReportMetric(0, "ns/op")
}

// least is the lesser time, of which the first may be none yet.
func least(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

func vhostLatency(b *testing.B, ring string) time.Duration {
	sockets := [2]string{socketPath(b), socketPath(b)}
	pmd := cable(b, sockets, testpmd.Options{Core: 1})
	defer pmd.Kill()
	x, y := openNIC(b, overVhost(sockets[0], ring, "&engine=inline"), via.Options{}), openNIC(b, overVhost(sockets[1], ring, "&engine=inline"), via.Options{})
	defer x.Close()
	defer y.Close()
	pmd.Do("start")
	return latency(b, conform.NewWorld(b, x, y))
}

func memifLatency(b *testing.B) time.Duration {
	pair := conform.NewWorld(b, nil, nil)
	o := testpmd.Options{Core: 1, Mode: "io"}
	for i, nic := range []**via.NIC{&pair.A, &pair.B} {
		socket := socketPath(b)
		*nic = openNIC(b, "emu:?role=server&mode=poll&wire=memif:"+socket, via.Options{})
		defer (*nic).Close()
		o.Devices = append(o.Devices, fmt.Sprintf("net_memif%d,role=client,socket=%s,socket-abstract=no", i, socket))
	}
	pmd := testpmd.Launch(b, o)
	defer pmd.Kill()
	pmd.Do("start")
	return latency(b, pair)
}

// perSlice is how many messages go to and fro between two looks at the clock.
const perSlice = 500

// latency is how long a message takes one way.
func latency(b *testing.B, p *conform.World) (best time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		b.Fatal(err)
	}
	one.Set(1)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		b.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &before)
	message := newBall(b, p, 64)
	bounce(b, message, perSlice)
	for range 10 * slices {
		started := time.Now()
		bounce(b, message, perSlice)
		best = least(best, time.Since(started)/(2*perSlice))
	}
	return best
}
