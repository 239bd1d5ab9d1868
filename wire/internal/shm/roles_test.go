package shm_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ci/kit/wiretest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

func TestOptions(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	for name, o := range map[string]shm.Options{
		"no path":             {},
		"no name":             {Path: "@"},
		"long path":           {Path: "/" + strings.Repeat("x", 107)},
		"zero byte":           {Path: "/tmp/a\x00b"},
		"role":                {Path: path, Role: 3},
		"negative role":       {Path: path, Role: -1},
		"MTU too small":       {Path: path, MTU: datasheet.MinMTU - 1},
		"MTU too large":       {Path: path, MTU: datasheet.MaxMTU + 1},
		"negative ring":       {Path: path, Ring: -1},
		"ring that is a disk": {Path: path, Ring: shm.MaxRing + 1},
	} {
		if p, err := shm.New(context.Background(), o); p != nil || !errors.Is(err, wire.ErrOptions) {
			t.Errorf("%s: a port: %v, error %v", name, p != nil, err)
		}
	}
}

// TestWhoComesFirst opens the two ends in all roles and orders that go together.
func TestWhoComesFirst(t *testing.T) {
	for _, roles := range [][2]shm.Role{
		{shm.RoleListen, shm.RoleConnect}, {shm.RoleConnect, shm.RoleListen},
		{shm.RoleAuto, shm.RoleAuto}, {shm.RoleListen, shm.RoleAuto}, {shm.RoleAuto, shm.RoleConnect},
		{shm.RoleConnect, shm.RoleAuto},
	} {
		for _, abstract := range []bool{false, true} {
			name := fmt.Sprint("roles ", roles)
			path := func(t *testing.T) string { return socket(t) }
			if abstract {
				name += " abstract"
				path = func(t *testing.T) string { return "@" + filepath.Base(filepath.Dir(socket(t))) + t.Name() }
			}
			t.Run(name, func(t *testing.T) {
				checkLeaks(t)
				o := shm.Options{Path: path(t)}
				o.Role = roles[0]
				a := open(t, o)
				o.Role = roles[1]
				b := open(t, o)
				up(t, a, b)
				bounce(t, a, b, 100)
				closePort(t, a)
				waittest.Until(t, "link down", func() bool { return !b.LinkUp() })
				closePort(t, b)
				should.Refuse(os.Lstat(o.Path))(t, os.ErrNotExist, "the socket is left")
			})
		}
	}
}

// TestAutoAtTheSameTime makes both ends look for each other at once, with a dead
// socket in the way.
func TestAutoAtTheSameTime(t *testing.T) {
	checkLeaks(t)
	for range 20 {
		path := socket(t)
		deadSocket(t, path)
		var ports [2]*shm.Port
		var errs [2]error
		var both sync.WaitGroup
		for i := range ports {
			both.Go(func() { ports[i], errs[i] = shm.New(context.Background(), shm.Options{Path: path}) })
		}
		both.Wait()
		must.OK(t, errors.Join(errs[:]...))
		up(t, ports[:]...)
		bounce(t, ports[0], ports[1], 64)
		closePort(t, ports[0])
		closePort(t, ports[1])
	}
}

// deadSocket leaves a socket that nobody listens at.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	fd := must.Get(unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	must.OK(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
}

func TestCannotOpen(t *testing.T) {
	checkLeaks(t)
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	stream := filepath.Join(folder, "stream")
	l := must.Get(net.Listen("unix", stream))(t)
	defer l.Close()
	listening := filepath.Join(folder, "listening")
	open(t, shm.Options{Path: listening, Role: shm.RoleListen})
	taken := filepath.Join(folder, "taken")
	a := open(t, shm.Options{Path: taken})
	b := open(t, shm.Options{Path: taken})
	up(t, a, b)
	for _, tt := range []struct {
		name string
		o    shm.Options
		err  error
	}{
		{"a file, listen", shm.Options{Path: file, Role: shm.RoleListen}, unix.EADDRINUSE},
		{"a file, auto", shm.Options{Path: file}, unix.EADDRINUSE},
		{"no folder", shm.Options{Path: filepath.Join(folder, "no", "wire"), Role: shm.RoleListen}, os.ErrNotExist},
		{"somebody listens", shm.Options{Path: listening, Role: shm.RoleListen}, unix.EADDRINUSE},
		{"another kind of socket, listen", shm.Options{Path: stream, Role: shm.RoleListen}, unix.EADDRINUSE},
		{"another kind of socket, connect", shm.Options{Path: stream, Role: shm.RoleConnect}, unix.EPROTOTYPE},
		{"third end, connect", shm.Options{Path: taken, Role: shm.RoleConnect}, shm.ErrBusy},
		{"third end, auto", shm.Options{Path: taken}, shm.ErrBusy},
	} {
		p, err := shm.New(context.Background(), tt.o)
		var e *wire.Error
		if p != nil || !errors.Is(err, tt.err) || !errors.As(err, &e) || e.Device != "shm:"+tt.o.Path || e.Hint == "" {
			t.Errorf("%s: a port: %v, error %v, want %v with a hint", tt.name, p != nil, err, tt.err)
		}
	}
	bounce(t, a, b, 64) // those who were sent away have done no harm
	// A file that is no socket stays.
	must.Get(os.Stat(file))(t)
}

// TestContextEndsNew: a listener that says nothing does not hold New up.
func TestContextEndsNew(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	l := must.Get(net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}))(t)
	defer l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() {
		if c, err := l.Accept(); err == nil {
			cancel()
			defer c.Close()
			_, _ = c.Read(make([]byte, 64)) // the greeting
			_, _ = c.Read(make([]byte, 64)) // the end
		}
	})
	if p, err := shm.New(ctx, shm.Options{Path: path, Role: shm.RoleConnect}); p != nil || err == nil {
		t.Errorf("a port: %v, error %v", p != nil, err)
	}
}

// TestMTU: a side that finds its peer takes the smaller of both MTUs, and either
// takes what the other sends.
func TestMTU(t *testing.T) {
	checkLeaks(t)
	for _, tt := range []struct{ listener, connector, want int }{
		{1500, 9000, 1500}, {9000, 1500, 1500}, {0, 0, shm.DefaultMTU},
		{datasheet.MaxMTU, datasheet.MinMTU, datasheet.MinMTU}, {datasheet.MinMTU, datasheet.MaxMTU, datasheet.MinMTU},
	} {
		path := socket(t)
		a := open(t, shm.Options{Path: path, MTU: tt.listener, Ring: 1})
		b := open(t, shm.Options{Path: path, MTU: tt.connector, Ring: 1})
		up(t, a, b)
		if b.MTU() != tt.want || tt.listener != 0 && a.MTU() != tt.listener {
			t.Errorf("MTUs %d and %d of %+v", a.MTU(), b.MTU(), tt)
		}
		for range 10 {
			bounce(t, a, b, a.MTU())
			bounce(t, b, a, b.MTU())
		}
		should.Be(t, a.Reserve(a.MTU()+1) != nil || b.Reserve(b.MTU()+1) != nil, false, "a frame beyond the MTU")
	}
}

// bounce sends one frame from a to b.
func bounce(t testing.TB, a, b wire.Port, n int) {
	t.Helper()
	sent := make([]byte, n)
	mark(sent, uint64(n))
	sendTo(t, a, sent)
	got := receiveFrom(t, b)
	must.Be(t, string(got) != string(sent), false, "sent %d bytes, received %d", len(sent), len(got))
}

func sendTo(t testing.TB, p wire.Port, frame []byte) {
	t.Helper()
	must.Be(t, wiretest.Send(p, frame), true, "room for a frame")
}

// receiveFrom returns a copy of the next frame.
func receiveFrom(t testing.TB, p wire.Port) []byte {
	t.Helper()
	defer p.Release()
	return append([]byte{}, wiretest.Await(t, p)...)
}
