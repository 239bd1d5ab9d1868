package netmem

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ring"
)

func (s *story) frame() ring.Frame { return ring.Frame{Memory: s.take(modelPage), Length: modelPage} }

// TestReconnect: a call that has time left waits for the only server, which is cut off meanwhile,
// to read and to write; one that has none left names the page.
func TestReconnect(t *testing.T) {
	tell(t, 1, 8, func(s *story) {
		must.OK(s, s.fill(7))
		c, _ := must.Two(s.client())(s)
		frame := s.frame()
		for name, call := range map[string]func(context.Context) error{
			"fetch": func(ctx context.Context) error { _, err := c.Fetch(ctx, 3, frame); return err },
			"store": func(ctx context.Context) error {
				// The version is none of the page, so that the server refuses it.
				if _, err := c.Store(ctx, 3, 1, frame); !errors.Is(err, ErrConflict) {
					return errors.Join(err, errors.New("no conflict"))
				}
				return nil
			},
		} {
			s.plug(0, false)
			for c.Stats().Servers[0].Connected {
				_, _ = c.Fetch(s.Context(), 3, frame)
			}
			short, cancel := context.WithTimeout(s.Context(), 200*time.Millisecond)
			defer cancel()
			var e *Error
			err := call(short)
			if !errors.Is(err, ErrUnavailable) || !errors.As(err, &e) || !strings.HasSuffix(e.Op, " page 3") {
				s.Errorf("%s without a server: %v", name, err)
			}
			if short.Err() == nil || !errors.Is(err, context.DeadlineExceeded) {
				s.Errorf("%s has not waited until its deadline: %v", name, err)
			}
			// Longer than the timeout: it is the context that counts.
			long, cancel := context.WithTimeout(s.Context(), time.Minute)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- call(long) }()
			time.Sleep(5 * time.Second)
			select {
			case err := <-done:
				s.Fatalf("%s has not waited for the server: %v", name, err)
			default:
			}
			s.plug(0, true)
			should.OK(s, <-done) // once the server is back
		}
		if _, err := c.Fetch(s.Context(), 3, frame); err != nil || frame.Bytes()[0] != 7 {
			s.Errorf("after all: %v", err)
		}
		canceled, cancel := context.WithCancel(s.Context())
		s.plug(0, false)
		time.AfterFunc(50*time.Millisecond, cancel)
		should.Refuse(c.Fetch(canceled, 3, frame))(s, context.Canceled, "canceled")
		s.plug(0, true)
	})
}

// TestCutOff: while the only server is cut off, the error says for which page, and what was written stays until
// it is back.
func TestCutOff(t *testing.T) {
	tell(t, 1, 64, func(s *story) {
		c, _ := must.Two(s.client())(s)
		write := func(text string) {
			must.Get(c.WriteAt([]byte(text), 0))(s)
		}
		want := func() {
			got := make([]byte, 6)
			if _, err := c.ReadAt(got, 0); err != nil || string(got) != "during" {
				s.Errorf("%q, %v", got, err)
			}
		}
		write("before")
		must.OK(s, c.Sync())
		write("during")
		s.plug(0, false)
		var e *Error
		if _, err := c.ReadAt(make([]byte, 1), 9*modelPage); !errors.Is(err, ErrUnavailable) || !errors.As(err, &e) || !strings.HasSuffix(e.Op, " page 9") {
			s.Errorf("read: %v", err)
		}
		should.Fail(s, c.Sync(), ErrUnavailable, "sync")
		want()
		for i := range int64(16) { // pages that are written whole need no server, but a place
			if _, err := c.WriteAt(make([]byte, modelPage), (20+i)*modelPage); err != nil && !errors.Is(err, ErrUnavailable) {
				s.Errorf("write: %v", err)
			}
		}
		s.plug(0, true)
		wantComplete(s.T, c)
		must.OK(s, c.Sync())
		c.Drop()
		want()
	})
}

// TestRestarted: a server that has restarted has other pages under the same addresses. What it has lost
// is not read as zeros, and what is written from now on counts.
func TestRestarted(t *testing.T) {
	tell(t, 1, 16, func(s *story) {
		must.OK(s, s.fill(7))
		c, _ := must.Two(s.client())(s)
		s.kill(s.servers[0])
		should.Refuse(c.ReadAt(make([]byte, 10), 0))(s, ErrUnavailable, "a page of a dead server")
		s.start(s.servers[0])
		for !c.Stats().Servers[0].Connected {
			time.Sleep(time.Millisecond)
		}
		should.Refuse(c.ReadAt(make([]byte, 10), 0))(s, ErrLost, "a lost page")
		eights := bytes.Repeat([]byte{8}, modelPage)
		must.Get(c.WriteAt(eights, 0))(s)
		must.OK(s, c.Sync())
		c.Drop()
		got := make([]byte, modelPage)
		must.Get(c.ReadAt(got, 0))(s)
		should.Same(s, got, eights, "what was written after the restart is not there")
		should.Refuse(c.ReadAt(make([]byte, 10), modelPage))(s, ErrLost, "another lost page")
	})
}

// TestFirstClientNeedsAll: while one of several new servers is missing, nobody can tell a page that was lost
// from one that was never written. Once they have been used together, one is enough.
func TestFirstClientNeedsAll(t *testing.T) {
	tell(t, 2, 16, func(s *story) {
		s.kill(s.servers[1])
		_, _, err := s.client()
		should.Fail(s, err, ErrUnavailable, "without one of two new servers")
		s.start(s.servers[1])
		must.OK(s, s.fill(7))
		s.kill(s.servers[1])
		s.wantAll("with one of them", 7)
	})
}

// TestLost: a page whose servers have all lost it is an error, and no zeros.
func TestLost(t *testing.T) {
	tell(t, 2, 16, func(s *story) {
		must.OK(s, s.fill(7))
		c, _ := must.Two(s.client())(s)
		for _, server := range s.servers {
			s.kill(server)
			s.start(server)
		}
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
		defer cancel()
		should.Refuse(c.Fetch(ctx, 0, s.frame()))(s, ErrLost, "a page that is lost")
		should.Refuse(c.Store(ctx, 0, 1, s.frame()))(s, ErrLost, "a write of it")
	})
}
