package shm_test

import (
	"errors"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/passedfdtest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// TestDescriptorsThatLinger: peers pass sockets whose close waits, with each kind
// of message, and leave. The next peer is welcome, and the port can be closed.
func TestDescriptorsThatLinger(t *testing.T) {
	for name, pass := range map[string]func(r *raw, fds []int){
		"hello":      func(r *raw, fds []int) { r.send(msgHello, magic, version, 1500, 0, fds[0]) },
		"many":       func(r *raw, fds []int) { r.send(msgHello, magic, version, 1500, 0, fds...) },
		"no message": func(r *raw, fds []int) { r.write([]byte{1}, fds...) },
		"behind it": func(r *raw, fds []int) {
			r.send(99, magic, version, 1500, 0)
			r.send(msgHello, magic, version, 1500, 0, fds...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			before := leaktest.Files(t)
			path := socket(t)
			p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
			passLingering(t, func() *raw { return dialRaw(t, path) }, pass)
			r := joinRaw(t, path, 0)
			up(t, p)
			// A stranger too, whom nobody listens to for long.
			passLingering(t, func() *raw { return dialRaw(t, path) }, pass)
			r.close()
			closeInTime(t, p, before)
		})
	}
	for name, kind := range map[string]uint32{"export": msgExport, "table": msgTable, "plug": msgLink, "unknown": 99} {
		t.Run("later "+name, func(t *testing.T) {
			checkLeaks(t)
			before := leaktest.Files(t)
			path := socket(t)
			p := open(t, shm.Options{Path: path, Role: shm.RoleListen, Share: true})
			passLingering(t, func() *raw { return joinRaw(t, path, flagShare) }, func(r *raw, fds []int) {
				r.send(kind, 1, 0, 4096, 0, fds[0])
				r.send(kind, 2, 0, 4096, 0, fds...)
			})
			joinRaw(t, path, 0)
			up(t, p)
			closeInTime(t, p, before)
		})
	}
}

// passLingering makes a peer pass descriptors and leave, once sockets that linger,
// and once what holds such ones.
func passLingering(t *testing.T, join func() *raw, pass func(r *raw, fds []int)) {
	t.Helper()
	fd := passedfdtest.Lingering(t)
	for _, passed := range []int{passedfdtest.Parcel(t, unix.SOCK_SEQPACKET, fd), fd} {
		r := join()
		pass(r, slices.Repeat([]int{passed}, 100))
		// Whoever closes it last waits.
		go unix.Close(passed)
		r.close()
	}
}

// closeInTime closes a port, and waits until little more files are open than before
// it was opened: a raw peer with its bells, and those that the lingering sockets are connected to.
func closeInTime(t *testing.T, p *shm.Port, before int) {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	waittest.Until(t, "the port is closed", func() bool {
		select {
		case err := <-closed:
			return err == nil || errors.Is(err, net.ErrClosed)
		default:
			return false
		}
	})
	const left = 5
	waittest.Until(t, "all files closed", func() bool { return leaktest.Files(t) <= before+left })
}
