package shm_test

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// TestBadGreetings: strangers at the socket are sent away, and the next peer is
// welcome.
func TestBadGreetings(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	good := func(change func(kind, id *uint32, a, b *uint64)) []byte {
		kind, id, a, b := uint32(msgHello), uint32(magic), uint64(version), uint64(1500)
		change(&kind, &id, &a, &b)
		return pack(kind, id, a, b, 0)
	}
	for _, tt := range []struct {
		name   string
		hello  []byte
		reason uint64 // 0: the connection just ends
	}{
		{"a byte", []byte{1}, 0},
		{"a byte too many", make([]byte, 33), 0},
		{"a book", make([]byte, 60000), 0},
		{"no bell", good(func(_, _ *uint32, _, _ *uint64) {}), 3},
		{"another kind", good(func(kind, _ *uint32, _, _ *uint64) { *kind = msgReady }), 3},
		{"an unknown kind", good(func(kind, _ *uint32, _, _ *uint64) { *kind = 99 }), 3},
		{"magic", good(func(_, id *uint32, _, _ *uint64) { *id++ }), 3},
		{"a version to come", good(func(_, _ *uint32, a, _ *uint64) { *a = version + 1 }), 2},
		{"version zero", good(func(_, _ *uint32, a, _ *uint64) { *a = 0 }), 2},
		{"a range of versions", good(func(_, _ *uint32, a, _ *uint64) { *a = 1 | 2<<16 }), 2},
		{"MTU too small", good(func(_, _ *uint32, _, b *uint64) { *b = datasheet.MinMTU - 1 }), 3},
		{"MTU too large", good(func(_, _ *uint32, _, b *uint64) { *b = 1 << 40 }), 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refused := p.Stats().Refused
			r := dialRaw(t, path)
			defer r.close()
			r.write(tt.hello)
			kind, _, a, versions, _, _ := r.read()
			if tt.reason == 0 && kind != 0 || tt.reason != 0 && (kind != msgRefuse || a != tt.reason || versions != version) {
				t.Errorf("answer of kind %d, reason %d, versions %#x", kind, a, versions)
			}
			waittest.Until(t, "counted", func() bool { return p.Stats().Refused > refused })
			should.Be(t, p.Err() == nil, false, "no reason")
		})
	}
	// A file comes with a greeting, with something else, and again with what should
	// be ready.
	for range 2 {
		for _, kind := range []uint32{msgHello, 0, msgReady, msgTable, 99} {
			r := dialRaw(t, path)
			r.send(kind, magic, version, 1500, 0, 0)
			r.read()
			r.close()
		}
		r := dialRaw(t, path)
		r.bells = []int{newTimer(t)}
		r.send(msgHello, magic, version, 1500, 0, r.bells[0])
		if _, _, _, _, _, fd := r.read(); fd >= 0 {
			unix.Close(fd)
		}
		r.send(msgWelcome, 0, 0, 0, 0, 0)
		r.read()
		r.close()
	}
	joinRaw(t, path, 0)
	up(t, p)
}

// connectionWithoutGreeting: a process that connects and sends nothing does
// not keep others out for long.
func connectionWithoutGreeting(t *testing.T) {
	path := socket(t)
	a := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	for range 3 {
		dialRaw(t, path)
	}
	b, err := shm.New(context.Background(), shm.Options{Path: path, Role: shm.RoleConnect})
	for errors.Is(err, shm.ErrBusy) {
		b, err = shm.New(context.Background(), shm.Options{Path: path, Role: shm.RoleConnect})
	}
	must.OK(t, err)
	defer closePort(t, b)
	up(t, a, b)
}

// fakeListener greets who connects with what answer makes, and keeps the
// connection until the test ends.
func fakeListener(t *testing.T, answer func(r *raw)) (path string) {
	t.Helper()
	path = socket(t)
	l := must.Get(net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			r := &raw{t: t, c: c}
			t.Cleanup(r.close)
			if _, _, _, _, _, fd := r.read(); fd >= 0 {
				unix.Close(fd)
			}
			answer(r)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return path
}

// sealedFile makes a file in memory with seals.
func sealedFile(t testing.TB, size int64, seals int) int {
	t.Helper()
	fd := must.Get(unix.MemfdCreate("lent", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
	t.Cleanup(func() { unix.Close(fd) })
	must.OK(t, errors.Join(unix.Ftruncate(fd, size), unix.Fallocate(fd, 0, 0, size)))
	must.Get(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals))(t)
	return fd
}

// TestHostileListener: a port that connects checks what it gets before it maps it.
func TestHostileListener(t *testing.T) {
	const ring = 128 << 10
	const size = 2 * (4096 + ring/2 + ring + 4096*16)
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	null := must.Get(os.Open(os.DevNull))(t)
	defer null.Close()
	good, bell := sealedFile(t, size, seals), newTimer(t)
	t.Cleanup(func() { unix.Close(bell) })
	welcome := func(versions, mtu, ring uint64, fds ...int) func(r *raw) {
		return func(r *raw) { r.send(msgWelcome, magic, versions, mtu, ring, fds...) }
	}
	refuse := func(reason, version uint64) func(r *raw) {
		return func(r *raw) { r.send(msgRefuse, 0, reason, version, 0) }
	}
	for name, tt := range map[string]struct {
		answer func(r *raw)
		err    error
	}{
		"no file":                         {welcome(version, 1500, ring), shm.ErrPeer},
		"two files":                       {welcome(version, 1500, ring, good, good), shm.ErrPeer},
		"no bell":                         {welcome(version, 1500, ring, good), shm.ErrPeer},
		"a hundred files":                 {welcome(version, 1500, ring, make([]int, 100)...), shm.ErrPeer},
		"not sealed":                      {welcome(version, 1500, ring, sealedFile(t, size, 0), bell), shm.ErrMemory},
		"not sealed against growing":      {welcome(version, 1500, ring, sealedFile(t, size, unix.F_SEAL_SHRINK), bell), shm.ErrMemory},
		"too short":                       {welcome(version, 1500, ring, sealedFile(t, size-4096, seals), bell), shm.ErrMemory},
		"no file in memory":               {welcome(version, 1500, ring, int(null.Fd()), bell), shm.ErrMemory},
		"a ring that is no power of two":  {welcome(version, 1500, ring+64, sealedFile(t, 2*size, seals), bell), shm.ErrPeer},
		"a ring too small for our frames": {welcome(version, 1500, 16<<10, good, bell), shm.ErrPeer},
		"a ring too small for its frames": {welcome(version, datasheet.MaxMTU, 32<<10, good, bell), shm.ErrPeer},
		"a ring too large":                {welcome(version, 1500, 1<<40, good, bell), shm.ErrPeer},
		"another version":                 {welcome(version-1, 1500, ring, good, bell), shm.ErrVersion},
		"refused for its version":         {refuse(2, version+1), shm.ErrVersion},
		"refused for want of memory":      {refuse(4, version), shm.ErrMemory},
		"refused without a reason":        {refuse(77, version), shm.ErrPeer},
		"an answer to something else":     {func(r *raw) { r.send(msgLinkSeen, 1, 0, 0, 0) }, shm.ErrPeer},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			path := fakeListener(t, tt.answer)
			p, err := shm.New(context.Background(), shm.Options{Path: path, Role: shm.RoleConnect})
			should.Hold(t, p == nil && errors.Is(err, tt.err), "a port: %v, error %v, want %v", p != nil, err, tt.err)
		})
	}
}

// TestStrangersAtAbstractSocket: a name has no permissions, so other users are
// not let in.
func TestStrangersAtAbstractSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	checkLeaks(t)
	name := "@" + t.Name() + socket(t)
	p := open(t, shm.Options{Path: name, Role: shm.RoleListen})
	const keep, nobody = ^uintptr(0), 65534
	as := func(uid uintptr, do func()) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		// Of this thread only.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uid, keep); errno != 0 {
			t.Skip(errno)
		}
		do()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep); errno != 0 {
			t.Fatal(errno)
		}
	}
	as(nobody, func() {
		r := dialRaw(t, name)
		r.send(msgHello, magic, version, 1500, 0)
		if kind, _, _, _, _, fd := r.read(); kind != 0 || fd >= 0 {
			t.Errorf("another user gets a message of kind %d", kind)
		}
	})
	joinRaw(t, name, 0)
	up(t, p)
	should.Be(t, p.Stats().Refused, 1, "refused")
}
