package virtio_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// longPool is for an MTU of 9000.
func longPool(t testing.TB) *ethernet.Pool {
	return porttest.NewPool(t, ethernet.PoolOptions{Buffers: 256, Size: 9216})
}

// qemuPair opens two of QEMU's models that are wired to each other.
func qemuPair(t testing.TB, options string, c, d ethernet.Options) (a, b ethernet.Port) {
	t.Helper()
	model := "virtio-net-pci" + options
	m := qemutest.Start(t, model+",mac=02:00:00:00:00:01", model+",mac=02:00:00:00:00:02")
	for n := range 2 {
		must.OK(t, m.Connect(n, m.NetAddr(1-n)))
	}
	return openQEMU(t, m, 0, c), openQEMU(t, m, 1, d)
}

// sendBytes sends frames, for all of which there is room.
func sendBytes(t testing.TB, q ethernet.Queue, frames ...[]byte) {
	t.Helper()
	must.Get(q.Unsent())(t) // takes buffers back
	fs := make([]ethernet.Frame, len(frames))
	must.Be(t, q.Cache().Alloc(fs), len(fs), "there are buffers for frames")
	for i, b := range frames {
		fs[i].Length = uint16(len(b))
		copy(q.Cache().Pool().Bytes(fs[i]), b)
	}
	must.Give(q.Send(fs))(t, len(fs), "frames")
}

// wantBytes waits for frames, and for none besides.
func wantBytes(t testing.TB, q ethernet.Queue, want ...[]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	frames := make([]ethernet.Frame, len(want)+1)
	for len(want) > 0 {
		n := must.Get(q.Receive(frames))(t)
		for _, f := range frames[:n] {
			if got := q.Cache().Pool().Bytes(f); len(want) == 0 || !bytes.Equal(got, want[0]) {
				t.Fatalf("a frame of %d bytes, which was not sent as that; %d have not come", len(got), len(want))
			}
			want = want[1:]
		}
		q.Cache().Free(frames[:n])
		if n == 0 {
			err := q.Wait(ctx)
			must.Hold(t, err == nil, "%d frames have not come: %v", len(want), err)
		}
	}
}

// numbered is frame number, of n bytes.
func numbered(number, n int) []byte {
	b := make([]byte, n)
	porttest.Fill(b, number)
	return b
}

// TestQEMULong exchanges frames of up to an MTU of 9000, short ones among them.
func TestQEMULong(t *testing.T) {
	for _, options := range []string{",packed=off", ",packed=on", ",packed=off,mrg_rxbuf=off", ",packed=on,mrg_rxbuf=off", ",packed=on,host_mtu=9000", ",packed=on,iommu_platform=on"} {
		t.Run(options[1:], func(t *testing.T) {
			c := ethernet.Options{MTU: 9000, ReceiveDescriptors: 64, SendDescriptors: 64}
			d := c
			c.Pool, d.Pool = longPool(t), longPool(t)
			a, b := qemuPair(t, options, c, d)
			number := 0
			for range 60 { // more than the rings hold
				for _, way := range [2][2]ethernet.Queue{{a.Queue(0), b.Queue(0)}, {b.Queue(0), a.Queue(0)}} {
					var frames [][]byte
					for _, n := range []int{9014, 60, 60 + number*389%8955, 1514} {
						number++
						frames = append(frames, numbered(number, n))
					}
					sendBytes(t, way[0], frames...)
					wantBytes(t, way[1], frames...)
				}
			}
			for _, p := range []ethernet.Port{a, b} {
				if c := p.Stats().Queues[0]; c.ReceivedFrames != uint64(number/2) || c.BadLengths+c.Unended+c.Lost+c.Restarts+c.NoBuffers != 0 {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// TestQEMUSeveralBuffers: of a frame that QEMU puts into several buffers nothing comes, whatever
// stands where one of them begins, and all others come.
func TestQEMUSeveralBuffers(t *testing.T) {
	const size = 2048                   // of a frame in a buffer of b
	const header, numBuffersAt = 12, 10 // of virtio before a frame
	for _, packed := range []string{"off", "on"} {
		for _, says := range []uint16{0xffff, 1, 0, 2} {
			t.Run(fmt.Sprintf("packed=%s, %#x buffers", packed, says), func(t *testing.T) {
				c := ethernet.Options{MTU: 9000, Pool: longPool(t), ReceiveDescriptors: 64}
				d := ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{Buffers: 256, Size: size}), ReceiveDescriptors: 64}
				a, b := qemuPair(t, ",packed="+packed, c, d)
				rounds := 0
				for ; rounds < 40; rounds++ {
					long := numbered(1000+rounds, size+1+rounds*389%(9014-size))
					// What each buffer after the first one begins with.
					for at := size; at+header+60 <= len(long); at += header + size {
						clear(long[at:][:header])
						binary.LittleEndian.PutUint16(long[at+numBuffersAt:], says)
						porttest.Fill(long[at+header:][:60], 2000)
					}
					before, after := numbered(rounds, 60), numbered(rounds, 1514)
					sendBytes(t, a.Queue(0), before, long, after)
					wantBytes(t, b.Queue(0), before, after)
				}
				got := b.Stats().Queues[0]
				should.Hold(t, got.Unended == uint64(rounds) && got.BadLengths+got.Restarts == 0, "%d long frames: %+v", rounds, got)
			})
		}
	}
}
