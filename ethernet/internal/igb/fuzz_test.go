package igb_test

import (
	"encoding/binary"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// FuzzSent makes the device tell anything about how far it has sent. No buffer is lost or in
// two hands, and the port goes on.
func FuzzSent(f *testing.F) {
	f.Add([]byte{1, 0, 2, 0, 3, 0})
	f.Add([]byte{5, 0, 1, 0, 63, 0, 64, 0})
	f.Add([]byte{0xff, 0xff, 0, 0, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := newFake(t, fakeigb.Options{})
		d.OnWrite = func(offset uint64, v uint32) bool { return offset == fakeigb.TDT && v != 0 }
		pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 200})
		p := open(t, d, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, SendDescriptors: 64})
		sent := uint64(0)
		for ; len(b) >= 2; b = b[2:] {
			for range 3 {
				n := must.Get(porttest.TrySend(p.Queue(0), porttest.FrameTo(own, 60), nil))(t)
				sent += uint64(n)
			}
			d.With(func() { d.ReportHead(0, uint32(int32(int16(binary.LittleEndian.Uint16(b))))) })
			unsent, err := p.Queue(0).Unsent()
			must.Hold(t, err == nil && unsent >= 0 && unsent <= 63, "%d unsent, %v", unsent, err)
		}
		c := p.Stats().Queues[0]
		should.Hold(t, c.SentFrames == sent && c.Lost <= sent, "sent %d, counted %+v", sent, c)
		must.OK(t, p.Close())
		should.Be(t, pool.Free(), 200, "of 200 buffers are back")
	})
}
