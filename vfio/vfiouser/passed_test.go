package vfiouser_test

import (
	"errors"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/passedfdtest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// message is one with its header.
func message(command int, payload []byte) []byte {
	return append(header(1, command, uint32(16+len(payload)), 0), payload...)
}

// TestDescriptorsThatLinger: a client passes sockets whose close waits, where they
// are looked at, where they are not, and where nobody receives them, and leaves.
// The next client has the device at once, and the server stops when it is told to.
func TestDescriptorsThatLinger(t *testing.T) {
	leaktest.Parallel(t)
	for _, tt := range []struct {
		name    string
		message []byte
		copies  int
	}{
		{"memory", message(cmdDMAMap, dmaMap(3, 0, 0x10000, page)), 1},
		{"interrupt", message(cmdSetIRQs, pack(20, 0x24, 2, 0, 1)), 1},
		{"interrupts", message(cmdSetIRQs, pack(20, 0x24, 2, 0, 16)), 16},
		{"unexpected", message(cmdGetInfo, pack(16, 0, 0, 0)), 1},
		{"too many", message(cmdSetIRQs, pack(20, 0x24, 2, 0, 253)), 253},
		{"message without end", message(cmdDMAMap, dmaMap(3, 0, 0x10000, page))[:20], 1},
		{"bad header", header(1, cmdGetInfo, 4096, 7), 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := serve(t, vfiouser.ServerOptions{})
			x := connect(t, r, true)
			fd := passedfdtest.Lingering(t)
			for _, passed := range []int{passedfdtest.Parcel(t, unix.SOCK_STREAM, fd), fd} {
				// The server has them until the message is whole, so that this close is not
				// the last one. It does not keep those that are too many.
				must.OK(t, x.write(tt.message[:8], slices.Repeat([]int{passed}, tt.copies)...))
				if tt.copies > 16 {
					go unix.Close(passed)
				} else if err := unix.Close(passed); err != nil {
					t.Fatal(err)
				}
				must.OK(t, x.write(tt.message[8:]))
			}
			x.leave(r)
			connect(t, r, true).alive()
			r.stop()
		})
	}
	t.Run("not received", func(t *testing.T) {
		r := serve(t, vfiouser.ServerOptions{})
		x := connect(t, r, true)
		// While x has the device nobody reads what a second one says after its greeting.
		second := must.Get(net.DialUnix("unix", nil, &net.UnixAddr{Name: r.path, Net: "unix"}))(t)
		y := &rawClient{t: t, c: second}
		fd := passedfdtest.Lingering(t)
		parcel := passedfdtest.Parcel(t, unix.SOCK_STREAM, fd)
		for range 20 {
			y.send(1, cmdVersion, 0, pack(uint16(0), uint16(0), versionText), fd, parcel)
		}
		must.OK(t, errors.Join(unix.Close(fd), unix.Close(parcel), second.Close()))
		waittest.Until(t, "the second client is refused", func() bool { return r.Stats().Refused == 1 })
		x.leave(r)
		connect(t, r, true).alive()
		r.stop()
	})
}

// TestDescriptorsThatNeverClose: the same with files of a file system whose server
// is dead to the world. It is not even asked what they are.
func TestDescriptorsThatNeverClose(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	before := leaktest.Files(t)
	fd, release := passedfdtest.Unanswered(t)
	for range 10 {
		x := connect(t, r, true)
		for range 10 {
			x.refuses(unix.EINVAL, cmdDMAMap, dmaMap(3, 0, 0x10000, page), fd)
			x.refuses(unix.EINVAL, cmdSetIRQs, pack(20, 0x24, 2, 0, 1), fd)
		}
		x.leave(r)
	}
	connect(t, r, true).alive()
	r.stop()
	release()
	_ = unix.Close(fd) // the file system has gone, and it says so
	// The server's socket has gone, the last client's end is still open.
	waittest.Until(t, "all files closed", func() bool { return leaktest.Files(t) <= before })
}
