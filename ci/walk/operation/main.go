// Operation runs one operation between two emulated NICs on the memory wire several times, one at
// a time. For each run it writes the coverage counters of the code that ran to a directory of its own.
// Its arguments are the operation (vi, conn, ring or page) and the directory for these. It is built with
// "go build -cover -covermode=atomic".
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"runtime/coverage"
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
	if err := measure(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// pair is two NICs, and what an operation closes before them.
type pair struct {
	near, far *via.NIC
	closers   []func() error
}

// prepare makes an operation ready: again is called before each run.
type prepare func(ctx context.Context, p *pair) (again, operation func() error, err error)

var operations = map[string]prepare{"vi": message, "conn": connMessage, "ring": ringMessage, "page": missedPage}

func measure(ctx context.Context, name, into string) error {
	prepare, ok := operations[name]
	if !ok {
		return fmt.Errorf("no operation %q", name)
	}
	var p pair
	for _, nic := range []**via.NIC{&p.near, &p.far} {
		var err error
		// Waits let others run, and never sleep: how long a wait takes is not the operation's.
		if *nic, err = via.Open(ctx, "emu:?wire=mem:walk", via.Options{Waiting: via.Waiting{Spin: -1, Sleep: -1}}); err != nil {
			return err
		}
	}
	again, operation, err := prepare(ctx, &p)
	if err != nil {
		return err
	}
	for i := range runs {
		if err := again(); err != nil {
			return err
		}
		for range idlePolls {
			p.far.Poll()
			p.near.Poll()
		}
		if err := coverage.ClearCounters(); err != nil {
			return err
		}
		if err := operation(); err != nil {
			return err
		}
		dir := filepath.Join(into, strconv.Itoa(i))
		if err := errors.Join(os.Mkdir(dir, 0o755), coverage.WriteMetaDir(dir), coverage.WriteCountersDir(dir)); err != nil {
			return err
		}
	}
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	return errors.Join(append(errs, p.near.Close(), p.far.Close())...)
}

// side is a VI with a descriptor of one message.
type side struct {
	vi         *via.VI
	descriptor *via.Descriptor
}

func newSide(ctx context.Context, nic *via.NIC) (s side, err error) {
	if s.vi, err = nic.CreateVI(ctx, via.VIAttributes{}, nil, nil); err != nil {
		return s, err
	}
	memory, err := nic.Alloc(ctx, size, via.MemoryAttributes{})
	if err != nil {
		return s, err
	}
	ds, err := s.vi.NewDescriptors(ctx, 1, 1)
	if err != nil {
		return s, err
	}
	s.descriptor = ds[0]
	return s, memory.AddTo(s.descriptor, 0, size)
}

// message is one of 64 bytes from PostSend to the receiver's RecvDone and the sender's
// SendDone.
func message(ctx context.Context, p *pair) (again, operation func() error, err error) {
	sender, err := newSide(ctx, p.near)
	if err != nil {
		return nil, nil, err
	}
	receiver, err := newSide(ctx, p.far)
	if err != nil {
		return nil, nil, err
	}
	if err := connect(ctx, p, sender, receiver); err != nil {
		return nil, nil, err
	}
	again = func() error {
		sender.descriptor.Rearm()
		receiver.descriptor.Rearm()
		return receiver.vi.PostRecv(receiver.descriptor)
	}
	return again, func() error {
		return errors.Join(sender.vi.PostSend(sender.descriptor), take(receiver.vi.RecvDone), take(sender.vi.SendDone))
	}, nil
}

func connect(ctx context.Context, p *pair, client, server side) error {
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
	return errors.Join(err, <-accepted)
}

// take polls until a descriptor is done.
func take(done func() (*via.Descriptor, error)) error {
	for {
		if _, err := done(); err != via.ErrNotDone {
			return err
		}
	}
}

func nothing() error { return nil }

// connMessage is one of 64 bytes from Conn.Send to Conn.Receive.
func connMessage(ctx context.Context, p *pair) (again, operation func() error, err error) {
	l, err := via.Listen(p.far, "walk", via.ListenOptions{})
	if err != nil {
		return nil, nil, err
	}
	out, err := via.Dial(ctx, p.near, l.Address().String(), via.ConnOptions{})
	if err != nil {
		return nil, nil, err
	}
	in, err := l.Accept(ctx)
	if err := errors.Join(err, l.Close()); err != nil { // a listener looks for others from time to time
		return nil, nil, err
	}
	p.closers = append(p.closers, in.Close, out.Close)
	b := make([]byte, size)
	send := func() error {
		if err := out.Send(ctx, b); err != nil {
			return err
		}
		if _, err := in.Receive(ctx); err != nil {
			return err
		}
		return in.Release()
	}
	for range 2 * via.DefaultConnDepth { // a queue claims each descriptor once, at its first post
		if err := send(); err != nil {
			return nil, nil, err
		}
	}
	return nothing, send, nil
}

// ringMessage is a control message of a ring with a payload, from GetSend to the receiver's
// ReleaseRecv.
func ringMessage(ctx context.Context, p *pair) (again, operation func() error, err error) {
	l, err := ring.Listen(p.far, "walk", ring.Options{})
	if err != nil {
		return nil, nil, err
	}
	out, err := ring.Dial(ctx, p.near, l.Address().String(), ring.Options{})
	if err != nil {
		return nil, nil, err
	}
	in, err := l.Accept(ctx)
	if err := errors.Join(err, l.Close()); err != nil { // a listener looks for others from time to time
		return nil, nil, err
	}
	p.closers = append(p.closers, in.Close, out.Close)
	memory, err := p.near.Alloc(ctx, size, via.MemoryAttributes{})
	if err != nil {
		return nil, nil, err
	}
	return nothing, func() error {
		e, err := out.GetSend()
		if err != nil {
			return err
		}
		if err := e.Attach(ring.Frame{Memory: memory, Length: size}, nil); err != nil {
			return err
		}
		if err := out.ReleaseSend(e); err != nil {
			return err
		}
		if e, err = in.Wait(ctx); err != nil {
			return err
		}
		if err := in.ReleaseRecv(e); err != nil {
			return err
		}
		_, err = out.WaitSent(ctx)
		return err
	}, nil
}

// missedPage is a written page of network memory that the client has not in its cache, from ReadAt to
// the page server and back.
func missedPage(ctx context.Context, p *pair) (again, operation func() error, err error) {
	s, err := netmem.NewServer(ctx, p.far, netmem.ServerOptions{Name: "walk", Size: 1 << 20})
	if err != nil {
		return nil, nil, err
	}
	c, err := netmem.Open(ctx, p.near, []string{s.Address().String()}, netmem.Options{ReadAhead: -1})
	if err != nil {
		return nil, nil, err
	}
	p.closers = append(p.closers, s.Close, c.Close)
	b := make([]byte, size)
	again = func() error {
		_, err := c.WriteAt(b, 0)
		err = errors.Join(err, c.Sync())
		c.Drop()
		return err
	}
	return again, func() error {
		_, err := c.ReadAt(b, 0)
		return err
	}, nil
}
