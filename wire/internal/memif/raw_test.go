package memif_test

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// rawPeer is a peer that does what a test wants, step by step.
type rawPeer struct {
	t        testing.TB
	conn     *protocol.Conn
	layout   ring.Layout
	file     int
	memory   []byte
	sends    *ring.Sender
	receives *ring.Receiver
}

// acceptRaw waits for a client.
func acceptRaw(t testing.TB, l *protocol.Listener) *rawPeer {
	t.Helper()
	r := &rawPeer{t: t, file: -1}
	waittest.Until(t, "a client", func() bool {
		conn, err := l.Accept()
		if err != nil && !errors.Is(err, protocol.ErrAgain) {
			t.Fatal(err)
		}
		r.conn = conn
		return err == nil
	})
	t.Cleanup(r.close)
	return r
}

// dialRaw connects to a server, which must be there.
func dialRaw(t testing.TB, socket string) *rawPeer {
	t.Helper()
	var conn *protocol.Conn
	waittest.Until(t, "room in the server's queue", func() bool {
		var err error
		conn, err = protocol.Dial(socket)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		return err == nil
	})
	r := &rawPeer{t: t, conn: conn, file: -1, layout: ring.Layout{C2S: 1, S2C: 1, Log2: 4, Capacity: 256}}
	t.Cleanup(r.close)
	return r
}

func (r *rawPeer) close() {
	if r.conn != nil {
		r.conn.Close()
	}
	if r.memory != nil {
		_ = unix.Munmap(r.memory)
	}
	if r.file >= 0 {
		_ = unix.Close(r.file)
	}
	r.conn, r.memory, r.file = nil, nil, -1
}

// send sends a message; whether the other side still listens is its business.
func (r *rawPeer) send(body protocol.Body, fd int) { _ = r.conn.Send(body, fd) }

// next returns the next message, or an error if the connection has ended. It
// keeps the first file that comes.
func (r *rawPeer) next() (protocol.Body, error) {
	r.t.Helper()
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		body, fd, err := r.conn.Receive()
		if errors.Is(err, protocol.ErrAgain) {
			continue
		}
		switch {
		case fd >= 0 && r.file < 0:
			r.file = fd
		case fd >= 0:
			_ = unix.Close(fd)
		}
		return body, err
	}
	r.t.Fatal("no answer")
	return nil, nil
}

// want waits for a message of one type.
func want[T protocol.Body](r *rawPeer) T {
	r.t.Helper()
	body, err := r.next()
	got, ok := body.(T)
	must.Be(r.t, ok, true, "message %#v, error %v, want %T", body, err, got)
	return got
}

// wantEnd waits until the other side has closed the connection, and returns
// what it said before.
func (r *rawPeer) wantEnd() (reason string) {
	r.t.Helper()
	for range 10 {
		body, err := r.next()
		if err != nil {
			return reason
		}
		if d, ok := body.(protocol.Disconnect); ok {
			reason = d.Reason
		}
	}
	r.t.Fatal("the connection does not end")
	return ""
}

// memfd makes a file in memory, sealable or not.
func memfd(t testing.TB, size int64, flags int) int {
	t.Helper()
	fd := must.Get(unix.MemfdCreate("peer", unix.MFD_CLOEXEC|flags))(t)
	must.OK(t, unix.Ftruncate(fd, size))
	return fd
}

// formatted makes the memory of a client.
func (r *rawPeer) formatted(flags int) {
	r.t.Helper()
	size := int64(r.layout.Size())
	r.file = memfd(r.t, size, flags)
	r.memory = must.Get(unix.Mmap(r.file, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(r.t)
	r.layout.Format(r.memory)
}

// greeted goes on until the server has accepted INIT.
func (r *rawPeer) greeted() {
	r.t.Helper()
	want[protocol.Hello](r)
	r.send(goodInit, -1)
	want[protocol.Ack](r)
}

var goodInit = protocol.Init{Version: protocol.Version, Name: "raw"}

// eventfd makes an eventfd that is closed with the test.
func eventfd(t testing.TB) int {
	t.Helper()
	fd := must.Get(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// ringOf is the description of a ring of r's layout.
func (r *rawPeer) ringOf(c2s bool) protocol.AddRing {
	add := protocol.AddRing{Offset: r.layout.Offset(c2s, 0), Log2: r.layout.Log2}
	if c2s {
		add.Flags = protocol.RingC2S
	}
	return add
}

// offered goes on until all but CONNECT has been sent. Eventfds, unless they are new ones, are those of the rings
// to the server and to the client.
func (r *rawPeer) offered(flags int, events ...int) {
	r.t.Helper()
	if events == nil {
		events = []int{eventfd(r.t), eventfd(r.t)}
	}
	r.greeted()
	r.formatted(flags)
	r.send(protocol.AddRegion{Size: r.layout.Size()}, r.file)
	want[protocol.Ack](r)
	for i, c2s := range []bool{true, false} {
		r.send(r.ringOf(c2s), events[i])
		want[protocol.Ack](r)
	}
}

// connect goes on until frames can flow.
func (r *rawPeer) connect(flags int, events ...int) {
	r.t.Helper()
	r.offered(flags, events...)
	r.send(protocol.Connect{Interface: "raw0"}, -1)
	want[protocol.Connected](r)
	r.sends = r.layout.Sender(r.memory, ring.Scratch(), 0)
	r.receives = r.layout.Receiver(r.memory, ring.Scratch(), 0)
}

// withRaw makes a server, and a client of it that frames can flow from.
func withRaw(t testing.TB, flags int, events ...int) (o memif.Options, server *memif.Port, r *rawPeer) {
	t.Helper()
	o = memif.Options{Socket: socketPath(t), Role: memif.Server}
	server = newPort(t, o)
	r = dialRaw(t, o.Socket)
	r.connect(flags, events...)
	waittest.Until(t, "link up", server.LinkUp)
	return o, server, r
}

// goodHello is what a server of ours says.
var goodHello = protocol.Hello{Name: "raw", MinVersion: protocol.Version, MaxVersion: protocol.Version, MaxLog2: 14}

// serve does a server's part until frames can flow.
func (r *rawPeer) serve(hello protocol.Hello) {
	r.t.Helper()
	r.send(hello, -1)
	want[protocol.Init](r)
	r.send(protocol.Ack{}, -1)
	var places [2]ring.Place
	for {
		body, err := r.next()
		switch m := body.(type) {
		case protocol.AddRegion:
			r.memory, err = unix.Mmap(r.file, 0, int(m.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		case protocol.AddRing:
			places[m.Flags] = ring.Place{Region: m.Region, Offset: m.Offset, Log2: m.Log2}
		case protocol.Connect:
			regions := [][]byte{r.memory}
			r.receives = must.Get(ring.OpenReceiver(regions, ring.Scratch(), places[1], true))(r.t)
			r.sends = must.Get(ring.OpenSender(regions, ring.Scratch(), places[0], true))(r.t)
			r.layout = ring.Layout{C2S: 1, S2C: 1, Log2: places[0].Log2, Capacity: 64}
			r.send(protocol.Connected{Interface: "raw0"}, -1)
			return
		default:
			r.t.Fatalf("message %#v, error %v", body, err)
		}
		must.OK(r.t, err)
		r.send(protocol.Ack{}, -1)
	}
}
