package afxdp_test

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// BenchmarkVeth moves frames from one end of a veth pair to the other, in bursts of 32: by
// ports of this package, and by packet sockets (AF_PACKET), which take a call for each
// frame at each end.
func BenchmarkVeth(b *testing.B) {
	for _, length := range []int{64, 1500} {
		for _, options := range []string{"", "?mode=generic"} {
			b.Run(fmt.Sprintf("afxdp%s/%d", options, length), func(b *testing.B) {
				left, right := pair(b, 1)
				c := ethernet.Options{Pool: newPool(b, ethernet.PoolOptions{})}
				benchPorts(b, open(b, "afxdp:"+left+options, c).Queue(0), open(b, "afxdp:"+right+options, c).Queue(0), length)
			})
		}
		b.Run(fmt.Sprintf("afpacket/%d", length), func(b *testing.B) {
			left, right := pair(b, 1)
			benchSockets(b, raw(b, left), raw(b, right), length)
		})
	}
}

const benchBurst = 32

func benchPorts(b *testing.B, from, to ethernet.Queue, length int) {
	frames := make([]ethernet.Frame, benchBurst)
	b.ReportAllocs()
	defer func() { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s") }()
	for done := 0; b.Loop(); done++ {
		if done%benchBurst != 0 {
			continue
		}
		n := from.Cache().Alloc(frames)
		for i := range frames[:n] {
			frames[i].Length = uint16(length)
		}
		for sent := 0; sent < n; {
			m, err := from.Send(frames[sent:n])
			if err != nil {
				b.Fatal(err)
			}
			sent += m
		}
		for got := 0; got < n; {
			m, err := to.Receive(frames)
			if err != nil {
				b.Fatal(err)
			}
			to.Cache().Free(frames[:m])
			if got += m; m == 0 {
				runtime.Gosched()
			}
		}
	}
}

func benchSockets(b *testing.B, from, to int, length int) {
	frame, got := make([]byte, length), make([]byte, 2048)
	porttest.Fill(frame, 0)
	b.ReportAllocs()
	defer func() { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s") }()
	for done := 0; b.Loop(); done++ {
		if done%benchBurst != 0 {
			continue
		}
		for range benchBurst {
			if _, err := unix.Write(from, frame); err != nil {
				b.Fatal(err)
			}
		}
		for range benchBurst {
			if _, err := unix.Read(to, got); err != nil {
				b.Fatal(err)
			}
		}
	}
}
