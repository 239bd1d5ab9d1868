package memif_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
)

// count is one of the counters of Stats.
type count func(s memif.Stats) uint64

func malformed(s memif.Stats) uint64   { return s.Malformed }
func notWelcome(s memif.Stats) uint64  { return s.NotWelcome }
func badMemory(s memif.Stats) uint64   { return s.BadMemory }
func timeouts(s memif.Stats) uint64    { return s.Timeouts }
func disconnects(s memif.Stats) uint64 { return s.Disconnects }
func violations(s memif.Stats) uint64  { return s.Violations }

// stillWorks connects an honest client to a server and sends frames.
func stillWorks(t *testing.T, server *memif.Port, o memif.Options) {
	t.Helper()
	o.Role = memif.Client
	client := newPort(t, o)
	waittest.Until(t, "an honest client is let in", func() bool { return client.LinkUp() && server.LinkUp() })
	exchange(t, client, server)
	should.OK(t, client.Close())
	waittest.Until(t, "the link goes down", func() bool { return !server.LinkUp() })
	server.Receive()
	server.Reserve(1)
}

func TestBadClients(t *testing.T) {
	const offset = 1 << 16 // as far as the memory of a raw peer reaches at most
	region := func(body protocol.AddRegion, open func(t *testing.T) int) func(t *testing.T, r *rawPeer) {
		return func(t *testing.T, r *rawPeer) {
			r.greeted()
			fd := open(t)
			defer unix.Close(fd)
			r.send(body, fd)
		}
	}
	memory := func(t *testing.T) int { return memfd(t, 1<<16, 0) }
	file := func(name string, flags int) func(t *testing.T) int {
		return func(t *testing.T) int {
			fd := must.Get(unix.Open(name, flags|unix.O_CLOEXEC, 0))(t)
			return fd
		}
	}
	ringWith := func(change func(add *protocol.AddRing)) func(t *testing.T, r *rawPeer) {
		return func(t *testing.T, r *rawPeer) {
			r.greeted()
			add := r.ringOf(true)
			change(&add)
			r.send(add, eventfd(t))
		}
	}
	placed := func(change func(add *protocol.AddRing)) func(t *testing.T, r *rawPeer) {
		return func(t *testing.T, r *rawPeer) {
			r.greeted()
			r.formatted(unix.MFD_ALLOW_SEALING)
			r.send(protocol.AddRegion{Size: r.layout.Size()}, r.file)
			want[protocol.Ack](r)
			for _, c2s := range []bool{true, false} {
				add := r.ringOf(c2s)
				if !c2s {
					change(&add)
				}
				r.send(add, eventfd(t))
				want[protocol.Ack](r)
			}
			r.send(protocol.Connect{}, -1)
		}
	}
	first := func(body protocol.Body) func(t *testing.T, r *rawPeer) {
		return func(t *testing.T, r *rawPeer) {
			want[protocol.Hello](r)
			r.send(body, -1)
		}
	}
	second := func(body protocol.Body) func(t *testing.T, r *rawPeer) {
		return func(t *testing.T, r *rawPeer) {
			r.greeted()
			r.send(body, -1)
		}
	}
	misbehave(t, memif.Server, func(t *testing.T, o memif.Options) (*memif.Port, *rawPeer, func()) {
		server := newPort(t, o)
		return server, dialRaw(t, o.Socket), func() { stillWorks(t, server, o) }
	}, []misbehaviour{
		{"short packet", func(t *testing.T, r *rawPeer) {
			want[protocol.Hello](r)
			_ = unix.Sendmsg(r.conn.FD(), []byte{3, 0}, nil, nil, 0)
		}, malformed, memif.ErrMessage, "size"},
		{"INIT with a descriptor", func(t *testing.T, r *rawPeer) {
			want[protocol.Hello](r)
			r.send(goodInit, eventfd(t))
		}, malformed, memif.ErrMessage, "too many"},
		{"ACK first", first(protocol.Ack{}), malformed, memif.ErrMessage, "ACK"},
		{"HELLO first", first(protocol.Hello{}), malformed, memif.ErrMessage, "HELLO"},
		{"CONNECT first", first(protocol.Connect{}), malformed, memif.ErrMessage, "CONNECT"},
		{"version 3", first(protocol.Init{Version: 0x300}), notWelcome, memif.ErrNotWelcome, "version 0x300"},
		{"mode IP", first(protocol.Init{Version: protocol.Version, Mode: 1}), notWelcome, memif.ErrNotWelcome, "Ethernet"},
		{"no such id", first(protocol.Init{Version: protocol.Version, ID: 1}), notWelcome, memif.ErrNotWelcome, "id 1"},
		{"INIT twice", second(goodInit), malformed, memif.ErrMessage, "INIT"},
		{"CONNECTED", second(protocol.Connected{}), malformed, memif.ErrMessage, "CONNECTED"},
		{"CONNECT without rings", second(protocol.Connect{}), malformed, memif.ErrMessage, "number of rings"},
		{"DISCONNECT", second(protocol.Disconnect{Reason: "no time"}), disconnects, memif.ErrRefused, "no time"},
		{"nothing before INIT", func(*testing.T, *rawPeer) {}, timeouts, memif.ErrTimeout, "has not said"},
		{"nothing after INIT", func(t *testing.T, r *rawPeer) { r.greeted() }, timeouts, memif.ErrTimeout, ""},

		{"region without file", second(protocol.AddRegion{Size: 4096}), malformed, memif.ErrMessage, "missing"},
		{"second region first", region(protocol.AddRegion{Index: 1, Size: 4096}, memory), malformed, memif.ErrMessage, "index"},
		{"region of no bytes", region(protocol.AddRegion{}, memory), badMemory, memif.ErrMemory, "0x0 bytes"},
		{"region longer than its file", region(protocol.AddRegion{Size: 1<<16 + 1}, memory), badMemory, memif.ErrMemory, "0x10000 bytes"},
		{"region longer than permitted", region(protocol.AddRegion{Size: memif.DefaultMaxMemory + 1}, memory), malformed, memif.ErrMessage, "size"},
		{"region of 2^64-1 bytes", region(protocol.AddRegion{Size: 1<<64 - 1}, memory), malformed, memif.ErrMessage, "size"},
		{"region on another file system", region(protocol.AddRegion{Size: 4096}, file("/proc/version", unix.O_RDONLY)), badMemory, memif.ErrMemory, "not in memory"},
		{"region in a folder", region(protocol.AddRegion{Size: 4096}, file("/dev/shm", unix.O_RDONLY|unix.O_DIRECTORY)), badMemory, memif.ErrMemory, ""},
		{"region in a device", region(protocol.AddRegion{Size: 4096}, file("/dev/zero", unix.O_RDWR)), badMemory, memif.ErrMemory, ""},
		{"region in an eventfd", region(protocol.AddRegion{Size: 4096}, func(t *testing.T) int {
			return must.Get(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
		}), badMemory, memif.ErrMemory, "not in memory"},
		{"region that can only be read", region(protocol.AddRegion{Size: 4096}, func(t *testing.T) int {
			fd := memory(t)
			defer unix.Close(fd)
			only := must.Get(unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0))(t)
			return only
		}), badMemory, memif.ErrMemory, "mmap"},

		{"ring without eventfd", second(protocol.AddRing{Flags: 1}), malformed, memif.ErrMessage, "missing"},
		{"ring with a file for an eventfd", func(t *testing.T, r *rawPeer) {
			r.greeted()
			fd := memory(t)
			defer unix.Close(fd)
			r.send(r.ringOf(true), fd)
		}, malformed, memif.ErrMessage, "not an eventfd"},
		{"ring flags", ringWith(func(a *protocol.AddRing) { a.Flags = 3 }), malformed, memif.ErrMessage, "flags"},
		{"second ring first", ringWith(func(a *protocol.AddRing) { a.Index = 1 }), malformed, memif.ErrMessage, "index"},
		{"ring of 2^15", ringWith(func(a *protocol.AddRing) { a.Log2 = 15 }), malformed, memif.ErrMessage, "log2"},
		{"ring of 2^255", ringWith(func(a *protocol.AddRing) { a.Log2 = 255 }), malformed, memif.ErrMessage, "log2"},
		{"private header", ringWith(func(a *protocol.AddRing) { a.PrivateHeader = 1 }), malformed, memif.ErrMessage, "private"},
		{"ring in no region", placed(func(a *protocol.AddRing) { a.Region = 1 }), badMemory, memif.ErrMemory, "region 1"},
		{"ring behind its region", placed(func(a *protocol.AddRing) { a.Offset = offset }), badMemory, memif.ErrMemory, "do not fit"},
		{"ring not aligned", placed(func(a *protocol.AddRing) { a.Offset += 2 }), badMemory, memif.ErrMemory, "aligned"},
		{"ring without cookie", placed(func(a *protocol.AddRing) { a.Offset += 64 }), badMemory, memif.ErrMemory, "cookie"},
		{"one direction only", func(t *testing.T, r *rawPeer) {
			r.greeted()
			r.send(r.ringOf(true), eventfd(t))
			want[protocol.Ack](r)
			r.send(protocol.Connect{}, -1)
		}, malformed, memif.ErrMessage, "number of rings"},

		{"more once connected", func(t *testing.T, r *rawPeer) {
			r.connect(unix.MFD_ALLOW_SEALING)
			r.send(protocol.AddRegion{Index: 1, Size: 4096}, r.file)
		}, malformed, memif.ErrMessage, "ADD_REGION"},
		{"garbage once connected", func(t *testing.T, r *rawPeer) {
			r.connect(unix.MFD_ALLOW_SEALING)
			_ = unix.Sendmsg(r.conn.FD(), make([]byte, 10000), nil, nil, 0)
		}, malformed, memif.ErrMessage, "size"},
	})
}

// misbehaviour is what a peer does, how it is counted, and the error of the port.
type misbehaviour struct {
	name  string
	do    func(t *testing.T, r *rawPeer)
	count count
	err   error
	says  string
}

// misbehave has peers misbehave towards ports of a role. open opens one of each, and returns what shows that the port
// still works.
func misbehave(t *testing.T, role memif.Role, open func(*testing.T, memif.Options) (*memif.Port, *rawPeer, func()), all []misbehaviour) {
	silent := map[string]func(*testing.T){}
	for _, tt := range all {
		do := func(t *testing.T) {
			o := memif.Options{Socket: socketPath(t), Role: role, Timeout: timeout}
			if errors.Is(tt.err, memif.ErrTimeout) {
				o.Timeout = 200 * time.Millisecond
			}
			p, r, works := open(t, o)
			tt.do(t, r)
			var s memif.Stats
			waittest.Until(t, "it is counted", func() bool { s = p.Stats(); return tt.count(s) >= 1 && s.Err != nil })
			var e *wire.Error
			if !errors.As(s.Err, &e) || !errors.Is(s.Err, tt.err) || !strings.Contains(s.Err.Error(), tt.says) {
				t.Errorf("error %v, want one of %q that says %q", s.Err, tt.err, tt.says)
			}
			if role == memif.Server { // a client has tried again by now
				should.Be(t, tt.count(s), 1, "counted")
				r.wantEnd()
			}
			r.close()
			works()
		}
		if errors.Is(tt.err, memif.ErrTimeout) {
			silent[tt.name] = do
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			leaktest.Check(t)
			do(t)
		})
	}
	leaktest.Check(t)
	waittest.Together(t, silent)
}
