package vhost_test

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/testpmd"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
)

func needsTestpmd(t testing.TB) {
	t.Helper()
	testpmd.Needs(t, "TRAPEZE_VHOST_INTEROP", "ci/vhost/run", "vhost", "virtio")
}

// socketPath returns a path that is short enough for a socket.
func socketPath(t testing.TB) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "vhost"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// backEnd starts testpmd as a back end that listens at a socket.
func backEnd(t testing.TB, socket string, o testpmd.Options) *testpmd.Process {
	t.Helper()
	o.Devices = []string{"net_vhost0,iface=" + socket + ",queues=" + strconv.Itoa(max(1, o.Queues))}
	_ = os.Remove(socket) // one that was killed leaves it, and it would not begin
	// Its link is down until we connect: it would wait 9 s for it.
	o.More = append(o.More, "--disable-link-check")
	p := testpmd.Launch(t, o)
	p.Await("the socket", func() bool { _, err := os.Stat(socket); return err == nil })
	return p
}

// newPort connects to it. Port and pool are closed with the test, in this order.
func newPort(t testing.TB, socket, ring string, c ethernet.Options) (ethernet.Port, *ethernet.Pool) {
	t.Helper()
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	c.Pool = pool
	ctx, cancel := context.WithTimeout(t.Context(), testpmd.Timeout)
	defer cancel()
	p := must.Get(ethernet.Open(ctx, ethernet.SchemeVhostUser+":"+socket+"?ring="+ring, c))(t)
	t.Cleanup(func() { should.OK(t, p.Close()) })
	return p, pool
}

// fill makes the bytes of a frame from its number, which is in them.
func fill(b []byte, number int) {
	copy(b, []byte{2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa, 0x88, 0xb5})
	for i := ethernet.HeaderSize; i < len(b); i++ {
		b[i] = byte(number*31 + i*7 + i>>8)
	}
	binary.BigEndian.PutUint32(b[ethernet.HeaderSize:], uint32(number))
}

// lengthOf is the length of frame number: 60 to 1514 bytes, in no regular order.
func lengthOf(number int) int { return 60 + number*389%1455 }

// timeout ends loops over so many frames that do not end by themselves.
func timeout(frames int) (over func() bool) {
	end := time.Now().Add(testpmd.Timeout + time.Duration(frames)*20*time.Microsecond)
	return func() bool { return time.Now().After(end) }
}
