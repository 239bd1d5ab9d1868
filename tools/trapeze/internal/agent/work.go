package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

// work serves clients between two take-overs. It ends with ctx, and closes nothing then.
type work struct {
	ctx   context.Context
	stop  context.CancelFunc
	shut  context.CancelFunc // lets no more programs in
	group sync.WaitGroup
}

// start has NICs pass frames on, clients be heard, and programs be let in.
func (a *Agent) start(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	w := &work{}
	w.ctx, w.stop = context.WithCancel(ctx)
	entrance, shut := context.WithCancel(w.ctx)
	w.shut = shut
	a.work = w
	for _, n := range a.nics {
		w.group.Go(func() { n.run(w.ctx) })
		if !n.local && n.port.Load() == nil {
			w.group.Go(func() { a.mend(w.ctx, n) })
		}
		for _, l := range n.table.Load().list {
			w.group.Go(func() { a.attend(w.ctx, l) })
		}
	}
	w.group.Go(func() { a.withdraw(w.ctx) })
	w.group.Go(func() { a.accept(ctx, entrance) })
}

// pause ends what start has begun.
func (a *Agent) pause() {
	a.mu.Lock()
	w := a.work
	a.work = nil
	a.mu.Unlock()
	if w != nil {
		w.stop()
		w.group.Wait()
	}
}

// accept lets programs in until entrance ends. They are served until ctx ends.
func (a *Agent) accept(ctx, entrance context.Context) {
	l := a.listener
	_ = l.SetDeadline(time.Time{})
	defer whenDone(entrance, func() { _ = l.SetDeadline(time.Unix(1, 0)) })()
	err := l.Each(entrance, func(c *net.UnixConn) { a.guests.Go(func() { a.serve(ctx, c) }) },
		func(err error) { a.log.Warn("cannot accept a client", "error", err) })
	if err != nil {
		a.end(err)
	}
}

// whenDone calls f when ctx ends. stop, which is called once, prevents that, or waits until f has returned and reports false.
func whenDone(ctx context.Context, f func()) (stop func() bool) {
	returned := make(chan struct{})
	prevent := context.AfterFunc(ctx, func() {
		defer close(returned)
		f()
	})
	return func() bool {
		if prevent() {
			return true
		}
		<-returned
		return false
	}
}

// end has Serve return.
func (a *Agent) end(err error) {
	select {
	case a.ended <- err:
	default:
	}
}

// attend tells a client who comes, until it leaves, or until ctx ends.
func (a *Agent) attend(ctx context.Context, l *client) {
	l.conn.Continue()
	ended := make(chan struct{})
	stop := whenDone(ctx, l.conn.Interrupt)
	var why error
	go func() {
		defer close(ended)
		// A program says nothing more. Its end, and what it should not say, end its use of the NIC.
		var fd int
		if _, fd, why = l.conn.Receive(time.Time{}); why == nil && fd >= 0 {
			_ = passedfd.Close(fd)
		}
	}()
	gone := false
	for more := true; more; {
		select {
		case s := <-l.said:
			err := l.conn.Send(s.m, s.fd)
			_ = unix.Close(s.fd)
			gone = err != nil && ctx.Err() == nil
			more = err == nil
		case <-ended:
			gone = !errors.Is(why, os.ErrDeadlineExceeded) || ctx.Err() == nil
			more = false
		}
	}
	if stop() {
		l.conn.Interrupt()
	}
	<-ended
	if gone {
		a.dismiss(l)
	}
}

// dismiss ends a client's use of its NIC.
func (a *Agent) dismiss(l *client) {
	a.leave(l)
	_ = l.port.Close()
	if l.nic.forgotten() { // its memory is given back at once, and else when it is collected
		l.port.Reserve(0)
		l.port.Receive()
	}
	l.conn.Close()
	a.log.Info("client gone", "nic", l.nic.Name, "station", l.mac, "pid", l.who.pid)
}

// leave forgets a client, and what it was to be told.
func (a *Agent) leave(l *client) {
	a.mu.Lock()
	l.nic.remove(l)
	a.clients = slices.DeleteFunc(a.clients, func(c *client) bool { return c == l })
	a.mu.Unlock()
	for len(l.said) > 0 {
		s := <-l.said
		_ = unix.Close(s.fd)
	}
}

// all returns the clients that have a NIC.
func (a *Agent) all() (all []*client) {
	for _, n := range a.nics {
		all = append(all, n.table.Load().list...)
	}
	return all
}
