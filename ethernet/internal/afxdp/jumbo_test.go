package afxdp_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/afxdp"
)

// jumboPair is pair with another MTU.
func jumboPair(t testing.TB, mtu int) (string, string) {
	t.Helper()
	a, b := pair(t, 1)
	for _, name := range []string{a, b} {
		must.OK(t, netlink.LinkSetMTU(linkOf(t, name), mtu))
	}
	return a, b
}

// TestJumbo: frames of all lengths up to the longest pass to the kernel and from it, in
// every mode, from buffers of whole pages and from others.
func TestJumbo(t *testing.T) {
	leaktest.Parallel(t)
	for i, options := range []string{"", "?mode=native", "?mode=generic"} {
		for j, c := range []ethernet.PoolOptions{{Size: 9216}, {Size: 3*4096 - 64}, {Headroom: 514, Size: 4*4096 - 514},
			{Size: 33024 + 1024, Buffers: 512}, {Size: 9*4096 - 64, Buffers: 512}} {
			if (i+j)%3 > 0 && !soak.Wanted() {
				continue
			}
			t.Run(fmt.Sprintf("%s,%d,%d", options, c.Headroom, c.Size), func(t *testing.T) {
				leaktest.Check(t)
				lengths, mtu := []int{60, 1514, 3776, 3840, 4032, 4096, 4097, 7936, 8128, 8192, 9013, 9014}, 9000
				if c.Size > ethernet.MaxMTUOverAFXDP {
					lengths, mtu = append(lengths, 16384, 32768, 33037, 33038), ethernet.MaxMTUOverAFXDP
				}
				a, b := jumboPair(t, mtu)
				pool := porttest.NewPool(t, c)
				p, kernel := open(t, "afxdp:"+a+options, ethernet.Options{Pool: pool, MTU: mtu, ReceiveDescriptors: 64, SendDescriptors: 64}), raw(t, b)
				q, f, got := p.Queue(0), make([]ethernet.Frame, 1), make([]byte, 40000)
				for i := range 300 { // round the rings, more than once
					length := lengths[i%len(lengths)]
					want := make([]byte, length)
					porttest.Fill(want, i)
					must.Be(t, q.Cache().Alloc(f), 1, "no buffer")
					f[0].Length = uint16(length)
					copy(pool.Bytes(f[0]), want)
					must.Give(q.Send(f))(t, 1)
					if n, err := unix.Read(kernel, got); err != nil || !bytes.Equal(got[:n], want) {
						t.Fatalf("%d bytes: the kernel has got %d, %v", length, n, err)
					}
					must.Get(unix.Write(kernel, want))(t)
					waittest.Until(t, "a frame", func() bool {
						n := must.Get(q.Receive(f))(t)
						return n == 1
					})
					must.Same(t, pool.Bytes(f[0]), want, "%d bytes: got %+v", length, f[0])
					q.Cache().Free(f)
				}
				waittest.Until(t, "all are sent", func() bool { n, err := q.Unsent(); return n == 0 && err == nil })
			})
		}
	}
}

// TestLargeMTU: a port for short frames opens in the driver also where the interface's MTU
// is large, and the long frames are dropped without a trace in short ones.
func TestLargeMTU(t *testing.T) {
	leaktest.Parallel(t)
	a, b := jumboPair(t, 9000)
	p, kernel := open(t, "afxdp:"+a+"?mode=native", ethernet.Options{}), raw(t, b)
	q, f := p.Queue(0), make([]ethernet.Frame, 1)
	for i := range 100 {
		long, want := make([]byte, 9014), make([]byte, 100)
		porttest.Fill(want, i)
		for _, frame := range [][]byte{long, want} {
			must.Get(unix.Write(kernel, frame))(t)
		}
		waittest.Until(t, "the short frame", func() bool {
			n := must.Get(q.Receive(f))(t)
			return n == 1
		})
		must.Same(t, q.Cache().Pool().Bytes(f[0]), want, "got %+v", f[0])
		q.Cache().Free(f)
	}
	should.Be(t, p.Stats().Device.Missed, 100, "frames were missed")
}

// TestForgedParts: whatever parts a kernel says that frames have, what comes out is whole
// frames that were asked for, and all else is dropped and counted up to its end.
func TestForgedParts(t *testing.T) {
	leaktest.Parallel(t)
	a, _ := jumboPair(t, 9000)
	const mtu, most = 9000, 3840 // most is what a chunk of a page takes
	type counts struct{ bad, unended uint64 }
	for name, tt := range map[string]struct {
		mtu     int
		parts   []afxdp.Part
		lengths []int
		counts  counts
	}{
		"whole":                 {mtu, []afxdp.Part{{most, true}, {most, true}, {1338, false}, {60, false}}, []int{9018, 60}, counts{}},
		"small parts":           {mtu, []afxdp.Part{{14, true}, {1, true}, {1, true}, {most, false}, {60, false}}, []int{3856, 60}, counts{}},
		"a byte too long":       {mtu, []afxdp.Part{{most, true}, {most, true}, {1339, false}, {60, false}}, []int{60}, counts{bad: 1}},
		"too long, and goes on": {mtu, []afxdp.Part{{most, true}, {most, true}, {most, true}, {60, true}, {60, false}, {61, false}}, []int{61}, counts{bad: 1}},
		"no end":                {mtu, []afxdp.Part{{60, false}, {most, true}, {most, true}}, []int{60}, counts{}},
		"a short front":         {mtu, []afxdp.Part{{13, true}, {1500, true}, {60, false}, {61, false}}, []int{61}, counts{bad: 1}},
		"an empty part":         {mtu, []afxdp.Part{{most, true}, {0, true}, {60, false}, {61, false}}, []int{61}, counts{bad: 1}},
		"an empty end":          {mtu, []afxdp.Part{{most, true}, {0, false}, {61, false}}, []int{61}, counts{bad: 1}},
		"a front beyond":        {mtu, []afxdp.Part{{most + 1, true}, {60, false}, {61, false}}, []int{61}, counts{bad: 1}},
		"a part beyond":         {mtu, []afxdp.Part{{most, true}, {1<<32 - 1, true}, {60, false}, {61, false}}, []int{61}, counts{bad: 1}},
		"not asked for":         {1500, []afxdp.Part{{1000, true}, {100, true}, {60, false}, {61, false}}, []int{61}, counts{unended: 1}},
		"not asked for, beyond": {1500, []afxdp.Part{{most + 1, true}, {100, false}, {61, false}}, []int{61}, counts{unended: 1}},
	} {
		for burst, size := range map[int]int{1: 9216, 8: 3*4096 - 64} {
			t.Run(fmt.Sprintf("%s,%d,%d", name, size, burst), func(t *testing.T) {
				pool := porttest.NewPool(t, ethernet.PoolOptions{Size: size, Buffers: 256}) // all come back, also of a frame without an end
				p := open(t, "afxdp:"+a, ethernet.Options{Pool: pool, MTU: tt.mtu, ReceiveDescriptors: 64})
				q := p.Queue(0)
				afxdp.Forge(p, 0, tt.parts, func(part int, buffer []byte) {
					for i := range buffer {
						buffer[i] = byte(part)
					}
				})
				// What comes is in order, and each byte is of the part in which it arrived.
				part, frames := 0, make([]ethernet.Frame, burst)
				for _, length := range tt.lengths {
					n, err := q.Receive(frames[:1])
					must.Hold(t, n == 1 && err == nil && int(frames[0].Length) == length,
						"%d frames, %v, %+v, want %d bytes", n, err, frames[0], length)
					b := pool.Bytes(frames[0])
					part = max(part, int(b[0]))
					for len(b) > 0 {
						want := bytes.Repeat([]byte{byte(part)}, int(tt.parts[part].Length))
						must.Hold(t, bytes.HasPrefix(b, want), "part %d is not there", part)
						b = b[len(want):]
						part++
					}
					q.Cache().Free(frames[:n])
				}
				must.Give(q.Receive(frames))(t, 0, "more frames")
				if c := p.Stats().Queues[0]; (counts{c.BadLengths, c.Unended}) != tt.counts || c.ReceivedFrames != uint64(len(tt.lengths)) {
					t.Errorf("counted %+v, want %+v", c, tt.counts)
				}
			})
		}
	}
}

// TestExplain: bare errors of the kernel say what is needed.
func TestExplain(t *testing.T) {
	for _, errno := range []error{unix.ERANGE, unix.ENOSPC, unix.EOPNOTSUPP} {
		err, _ := afxdp.Explain(errno, nil)
		should.Hold(t, errors.Is(err, ethernet.ErrNotSupported) && errors.Is(err, errno), "attach: %v", err)
	}
	for _, errno := range []error{unix.EINVAL, unix.EOPNOTSUPP} {
		_, err := afxdp.Explain(nil, errno)
		should.Hold(t, errors.Is(err, ethernet.ErrNotSupported) && strings.Contains(err.Error(), "Linux 6.6"), "bind: %v", err)
	}
}
