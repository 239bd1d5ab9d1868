package memif_test

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/passedfdtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
)

// TestDescriptorsThatLinger: clients pass sockets whose close waits, and leave. The
// next client is let in, and the port can be closed.
func TestDescriptorsThatLinger(t *testing.T) {
	later := map[string]bool{"region": true, "ring": true}
	for name, pass := range map[string]func(r *rawPeer, fd int){
		"region": func(r *rawPeer, fd int) {
			r.send(protocol.AddRegion{Size: 4096}, fd)
		},
		"ring": func(r *rawPeer, fd int) {
			r.send(r.ringOf(true), fd)
		},
		"too early":  func(r *rawPeer, fd int) { r.send(protocol.AddRegion{Size: 4096}, fd) },
		"unexpected": func(r *rawPeer, fd int) { r.send(goodInit, fd) },
		"too many": func(r *rawPeer, fd int) {
			r.sendRaw(protocol.Encode(protocol.AddRegion{Size: 4096})[:], slices.Repeat([]int{fd}, 200)...)
		},
		"no message": func(r *rawPeer, fd int) { r.sendRaw([]byte{1}, fd, fd) },
		"not received": func(r *rawPeer, fd int) {
			for range 20 {
				r.sendRaw([]byte{1}, fd, fd)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			leaktest.Check(t)
			before := leaktest.Files(t)
			o := memif.Options{Socket: socketPath(t), Role: memif.Server}
			server := newPort(t, o)
			fd := passedfdtest.Lingering(t)
			for _, passed := range []int{passedfdtest.Parcel(t, unix.SOCK_SEQPACKET, fd), fd} {
				r := dialRaw(t, o.Socket)
				for later[name] && !r.letIn() {
					r.close() // the last one is still on its way out
					r = dialRaw(t, o.Socket)
				}
				pass(r, passed)
				go unix.Close(passed) // whoever closes it last waits
				r.close()
			}
			stillWorks(t, server, o)
			closed := make(chan error, 1)
			go func() { closed <- server.Close() }()
			waittest.Until(t, "the port is closed", func() bool { return len(closed) > 0 })
			should.OK(t, <-closed)
			// What the lingering socket is connected to stays.
			waittest.Until(t, "all files closed", func() bool { return leaktest.Files(t) <= before+1 })
		})
	}
}

// letIn is greeted, unless the server has a client still.
func (r *rawPeer) letIn() bool {
	r.t.Helper()
	want[protocol.Hello](r)
	r.send(goodInit, -1)
	body, _ := r.next()
	_, ok := body.(protocol.Ack)
	return ok
}

// sendRaw sends bytes with descriptors.
func (r *rawPeer) sendRaw(p []byte, fds ...int) {
	r.t.Helper()
	if err := unix.Sendmsg(r.conn.FD(), p, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL); err != nil {
		r.t.Log(err)
	}
}
