package vhost_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/testpmd"
	"github.com/trapeze-nic/trapeze/ethernet"
)

const (
	warmUp = 200 * time.Millisecond
	// Of each driver the best of so many slices of so many rounds counts, which take turns:
	// others on the machine only make both slower.
	slice  = 250 * time.Millisecond
	slices = 4
	rounds = 3
	// descriptors is net_virtio_user's own choice.
	descriptors = 256
	bursts      = 32
	// headers is how many bytes testpmd writes of each frame that it makes: Ethernet, IPv4
	// and UDP.
	headers = 42
)

// BenchmarkFrames compares with DPDK's net_virtio_user: the same back end on one processor,
// either driver on another, frames a second one way.
func BenchmarkFrames(b *testing.B) {
	needsTestpmd(b)
	if runtime.NumCPU() < 2 {
		b.Skip("needs two processors")
	}
	for _, ring := range rings {
		for _, size := range []int{64, 1500} {
			for _, sending := range []bool{true, false} {
				name := "from"
				if sending {
					name = "to"
				}
				b.Run(fmt.Sprintf("%s/%d/%s", ring, size, name), func(b *testing.B) {
					var ours, theirs float64
					for b.Loop() {
						for range rounds {
							theirs = max(theirs, dpdk(b, ring, size, sending))
							ours = max(ours, port(b, ring, size, sending))
						}
					}
					b.ReportMetric(ours/1e6, "Mframes/s")
					b.ReportMetric(theirs/1e6, "DPDK-Mframes/s")
					b.ReportMetric(ours/theirs, "ratio")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

// back starts a back end on the first processor that receives, or sends frames of a size.
func back(b *testing.B, socket string, size int, receives bool) *testpmd.Process {
	return backEnd(b, socket, testpmd.Options{Core: 1, Mode: mode(receives), More: []string{"--txpkts=" + strconv.Itoa(size)}})
}

func mode(receives bool) string {
	if receives {
		return "rxonly"
	}
	return "txonly"
}

// rate is how many frames a second count counts in the best slice.
func rate(count func() int, step func(end time.Time)) (best float64) {
	step(time.Now().Add(warmUp))
	for range slices {
		first, started := count(), time.Now()
		step(started.Add(slice))
		last := count()
		best = max(best, float64(last-first)/time.Since(started).Seconds())
	}
	return best
}

// dpdk measures net_virtio_user.
func dpdk(b *testing.B, ring string, size int, sending bool) float64 {
	socket := socketPath(b)
	server := back(b, socket, size, sending)
	defer server.Kill()
	packed := 0
	if ring == "packed" {
		packed = 1
	}
	client := testpmd.Launch(b, testpmd.Options{Core: 2, Mode: mode(!sending),
		Devices: []string{fmt.Sprintf("net_virtio_user0,path=%s,packed_vq=%d,queue_size=%d", socket, packed, descriptors)},
		More:    []string{"--txpkts=" + strconv.Itoa(size), "--disable-link-check"}})
	defer client.Kill()
	receiver, sender := server, client
	if !sending {
		receiver, sender = client, server
	}
	receiver.Do("start")
	sender.Do("start")
	return rate(func() int { return receiver.Statistic(0, "RX-packets") }, func(end time.Time) { time.Sleep(time.Until(end)) })
}

// onSecondCore keeps this goroutine on the second core until the function that it returns is called.
func onSecondCore(b *testing.B) (leave func()) {
	b.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	must.OK(b, unix.SchedGetaffinity(0, &before))
	one.Set(1)
	must.OK(b, unix.SchedSetaffinity(0, &one))
	return func() {
		_ = unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	}
}

// port measures ours.
func port(b *testing.B, ring string, size int, sending bool) float64 {
	socket := socketPath(b)
	server := back(b, socket, size, sending)
	defer server.Kill()
	p, pool := newPort(b, socket, ring, ethernet.Options{ReceiveDescriptors: descriptors, SendDescriptors: descriptors})
	defer p.Close()
	server.Do("start")
	defer onSecondCore(b)()
	q := p.Queue(0)
	if sending {
		return rate(func() int { return server.Statistic(0, "RX-packets") }, func(end time.Time) { transmit(b, pool, q, size, end) })
	}
	return rate(func() int { return int(p.Stats().Queues[0].ReceivedFrames) }, func(end time.Time) { drain(b, q, end) })
}

// looks is how many bursts there are between two looks at the clock.
const looks = 256

// transmit sends as much as it can until end.
func transmit(b *testing.B, pool *ethernet.Pool, q ethernet.Queue, size int, end time.Time) {
	var header [headers]byte
	fill(header[:], 0)
	frames := make([]ethernet.Frame, bursts)
	for time.Now().Before(end) {
		for range looks {
			n := q.Cache().Alloc(frames)
			for i := range n {
				frames[i].Length = uint16(size)
				copy(pool.Bytes(frames[i]), header[:])
			}
			sent := must.Get(q.Send(frames[:n]))(b)
			q.Cache().Free(frames[sent:n])
		}
	}
}

// drain receives as much as it can until end.
func drain(b *testing.B, q ethernet.Queue, end time.Time) {
	frames := make([]ethernet.Frame, bursts)
	for time.Now().Before(end) {
		for range looks {
			n := must.Get(q.Receive(frames))(b)
			q.Cache().Free(frames[:n])
		}
	}
}
