// Operation runs one operation between two emulated NICs on the memory wire several times, one at
// a time. For each run it writes the coverage counters of the code that ran to a directory of its own.
// Its arguments are the operation (vi, conn, ring or page) and the directory for these. It is built with
// "go build -cover -covermode=atomic".
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"runtime/coverage"
	"slices"
	"strconv"

	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

const (
	size = 64 // of a message in bytes
	// runs is the number of times that an operation runs, so that what only some of them pass, such as a
	// look at the timers, can be told from what all do.
	runs = 16
	// idlePolls is the number of polls of both NICs without work before each run, so that
	// nothing is left of the one before.
	idlePolls = 256
)

func main() {
	runtime.GOMAXPROCS(1) // the page server's goroutine runs when a wait lets it, in each run alike
	measure(context.Background(), os.Args[1], os.Args[2])
}

// ok ends the program if there is an error.
func ok(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// get returns the value of a call that may have ended with an error.
func get[T any](v T, err error) T {
	ok(err)
	return v
}

// pair is two NICs, and what an operation closes before them.
type pair struct {
	near, far *via.NIC
	closers   []func() error
}

// prepare makes an operation ready: again is called before each run.
type prepare func(ctx context.Context, p *pair) (again, operation func())

var operations = map[string]prepare{"vi": message, "conn": connMessage, "ring": ringMessage, "page": missedPage}

func measure(ctx context.Context, name, into string) {
	prepare, known := operations[name]
	if !known {
		log.Fatalf("no operation %q", name)
	}
	var p pair
	for _, nic := range []**via.NIC{&p.near, &p.far} {
		// Waits let others run, and never sleep: how long a wait takes is not the operation's.
		*nic = get(via.Open(ctx, "emu:?wire=mem:walk", via.Options{Waiting: via.Waiting{Spin: -1, Sleep: -1}}))
	}
	again, operation := prepare(ctx, &p)
	for i := range runs {
		again()
		for range idlePolls {
			p.far.Poll()
			p.near.Poll()
		}
		ok(coverage.ClearCounters())
		operation()
		dir := filepath.Join(into, strconv.Itoa(i))
		ok(errors.Join(os.Mkdir(dir, 0o755), coverage.WriteMetaDir(dir), coverage.WriteCountersDir(dir)))
	}
	for _, end := range slices.Backward(p.closers) {
		ok(end())
	}
	ok(errors.Join(p.near.Close(), p.far.Close()))
}

// side is a VI with a descriptor of one message.
type side struct {
	vi         *via.VI
	descriptor *via.Descriptor
}

func newSide(ctx context.Context, nic *via.NIC) side {
	vi := get(nic.CreateVI(ctx, via.VIAttributes{}, nil, nil))
	d := get(vi.NewDescriptors(ctx, 1, 1))[0]
	ok(get(nic.Alloc(ctx, size, via.MemoryAttributes{})).AddTo(d, 0, size))
	return side{vi, d}
}

// message is one of 64 bytes from PostSend to the receiver's RecvDone and the sender's
// SendDone.
func message(ctx context.Context, p *pair) (again, operation func()) {
	sender, receiver := newSide(ctx, p.near), newSide(ctx, p.far)
	connect(ctx, p, sender, receiver)
	again = func() {
		sender.descriptor.Rearm()
		receiver.descriptor.Rearm()
		ok(receiver.vi.PostRecv(receiver.descriptor))
	}
	return again, func() {
		ok(sender.vi.PostSend(sender.descriptor))
		take(receiver.vi.RecvDone)
		take(sender.vi.SendDone)
	}
}

func connect(ctx context.Context, p *pair, client, server side) {
	accepted := make(chan error, 1)
	go func() {
		request, err := p.far.ConnectWait(ctx, "")
		if err == nil {
			_, err = request.Accept(ctx, server.vi)
		}
		accepted <- err
	}()
	err := error(via.ErrNoMatch)
	for errors.Is(err, via.ErrNoMatch) { // until the server waits
		_, err = client.vi.ConnectRequest(ctx, via.Address{MAC: p.far.Query().Address}, "")
	}
	ok(errors.Join(err, <-accepted))
}

// take polls until a descriptor is done.
func take(done func() (*via.Descriptor, error)) {
	for {
		if _, err := done(); err != via.ErrNotDone {
			ok(err)
			return
		}
	}
}

func nothing() {}

// connMessage is one of 64 bytes from Conn.Send to Conn.Receive.
func connMessage(ctx context.Context, p *pair) (again, operation func()) {
	l := get(via.Listen(p.far, "walk", via.ListenOptions{}))
	out := get(via.Dial(ctx, p.near, l.Address().String(), via.ConnOptions{}))
	in := get(l.Accept(ctx))
	ok(l.Close()) // a listener looks for others from time to time
	p.closers = append(p.closers, in.Close, out.Close)
	b := make([]byte, size)
	send := func() {
		ok(out.Send(ctx, b))
		get(in.Receive(ctx))
		ok(in.Release())
	}
	for range 2 * via.DefaultConnDepth { // a queue claims each descriptor once, at its first post
		send()
	}
	return nothing, send
}

// ringMessage is a control message of a ring with a payload, from GetSend to the receiver's
// ReleaseRecv.
func ringMessage(ctx context.Context, p *pair) (again, operation func()) {
	l := get(ring.Listen(p.far, "walk", ring.Options{}))
	out := get(ring.Dial(ctx, p.near, l.Address().String(), ring.Options{}))
	in := get(l.Accept(ctx))
	ok(l.Close()) // a listener looks for others from time to time
	p.closers = append(p.closers, in.Close, out.Close)
	memory := get(p.near.Alloc(ctx, size, via.MemoryAttributes{}))
	return nothing, func() {
		e := get(out.GetSend())
		ok(e.Attach(ring.Frame{Memory: memory, Length: size}, nil))
		ok(out.ReleaseSend(e))
		ok(in.ReleaseRecv(get(in.Wait(ctx))))
		get(out.WaitSent(ctx))
	}
}

// missedPage is a written page of network memory that the client has not in its cache, from ReadAt to
// the page server and back.
func missedPage(ctx context.Context, p *pair) (again, operation func()) {
	s := get(netmem.NewServer(ctx, p.far, netmem.ServerOptions{Name: "walk", Size: 1 << 20}))
	c := get(netmem.Open(ctx, p.near, []string{s.Address().String()}, netmem.Options{ReadAhead: -1}))
	p.closers = append(p.closers, s.Close, c.Close)
	b := make([]byte, size)
	again = func() {
		get(c.WriteAt(b, 0))
		ok(c.Sync())
		c.Drop()
	}
	return again, func() { get(c.ReadAt(b, 0)) }
}
