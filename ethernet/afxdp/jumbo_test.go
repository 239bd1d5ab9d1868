package afxdp_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/ethernet/porttest"
	"github.com/trapeze-nic/trapeze/internal/leaktest"
)

// jumboPair is pair with an MTU of 9000.
func jumboPair(t testing.TB) (string, string) {
	t.Helper()
	a, b := pair(t, 1)
	for _, name := range []string{a, b} {
		if err := netlink.LinkSetMTU(linkOf(t, name), 9000); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// TestJumbo: frames of all lengths up to the longest pass to the kernel and from it, in
// every mode, from buffers of whole pages and from others.
func TestJumbo(t *testing.T) {
	for _, options := range []string{"", "?mode=native", "?mode=generic"} {
		for _, c := range []ethernet.PoolConfig{{Size: 9216}, {Size: 3*4096 - 64}, {Headroom: 514, Size: 4*4096 - 514}} {
			t.Run(fmt.Sprintf("%s,%d,%d", options, c.Headroom, c.Size), func(t *testing.T) {
				leaktest.Check(t)
				a, b := jumboPair(t)
				pool := newPool(t, c)
				p, kernel := open(t, "afxdp:"+a+options, ethernet.Config{Pool: pool, MTU: 9000, ReceiveDescriptors: 64, SendDescriptors: 64}), raw(t, b)
				q, f, got := p.Queue(0), make([]ethernet.Frame, 1), make([]byte, 10000)
				for i := range 300 { // round the rings, more than once
					length := []int{60, 1514, 3776, 3840, 4032, 4096, 4097, 7936, 8128, 8192, 9013, 9014}[i%12]
					want := make([]byte, length)
					porttest.Fill(want, i)
					if q.Cache().Alloc(f) != 1 {
						t.Fatal("no buffer")
					}
					f[0].Length = uint16(length)
					copy(pool.Bytes(f[0]), want)
					if n, err := q.Send(f); n != 1 || err != nil {
						t.Fatal(n, err)
					}
					if n, err := unix.Read(kernel, got); err != nil || !bytes.Equal(got[:n], want) {
						t.Fatalf("%d bytes: the kernel has got %d, %v", length, n, err)
					}
					if _, err := unix.Write(kernel, want); err != nil {
						t.Fatal(err)
					}
					eventually(t, "a frame", func() bool {
						n, err := q.Receive(f)
						if err != nil {
							t.Fatal(err)
						}
						return n == 1
					})
					if !bytes.Equal(pool.Bytes(f[0]), want) {
						t.Fatalf("%d bytes: got %+v", length, f[0])
					}
					q.Cache().Free(f)
				}
				eventually(t, "all are sent", func() bool { n, err := q.Unsent(); return n == 0 && err == nil })
			})
		}
	}
}

// TestLargeMTU: a port for short frames opens in the driver also where the interface's MTU
// is large, and the long frames are dropped without a trace in short ones.
func TestLargeMTU(t *testing.T) {
	leaktest.Check(t)
	a, b := jumboPair(t)
	p, kernel := open(t, "afxdp:"+a+"?mode=native", ethernet.Config{}), raw(t, b)
	q, f := p.Queue(0), make([]ethernet.Frame, 1)
	for i := range 100 {
		long, want := make([]byte, 9014), make([]byte, 100)
		porttest.Fill(want, i)
		for _, frame := range [][]byte{long, want} {
			if _, err := unix.Write(kernel, frame); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the short frame", func() bool {
			n, err := q.Receive(f)
			if err != nil {
				t.Fatal(err)
			}
			return n == 1
		})
		if !bytes.Equal(q.Cache().Pool().Bytes(f[0]), want) {
			t.Fatalf("got %+v", f[0])
		}
		q.Cache().Free(f)
	}
	if n := p.Counters().Device.Missed; n != 100 {
		t.Errorf("%d frames were missed", n)
	}
}
