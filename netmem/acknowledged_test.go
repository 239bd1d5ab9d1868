package netmem

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// story is what a test says that happens to clients and servers, in virtual time. The servers lend
// memory.
type story struct {
	*schedule
	opened int // clients so far
}

// tell tells a story.
func tell(t *testing.T, servers, pages int, f func(s *story)) {
	t.Helper()
	l := newLender(t)
	s := &story{schedule: &schedule{network: newNetwork(l, 0), pages: pages, counts: map[string]uint64{}}}
	for i := range servers {
		s.servers = append(s.servers, &modelServer{node: fmt.Sprintf("s%d", i)})
	}
	synctest.Test(t, func(t *testing.T) {
		s.begin(t)
		defer s.end()
		f(s)
	})
}

// client opens a client, which ends with the story at the latest.
func (s *story) client() (*Client, *process, error) {
	s.opened++
	p := s.process("client", s.opened)
	c, err := s.open(p, 2*time.Second)
	if err == nil {
		s.atEnd(func() { _ = c.Close() }) // a test may have closed it
	}
	return c, p, err
}

// use opens a client, has it do something, and closes it.
func (s *story) use(f func(c *Client) error) error {
	s.Helper()
	c, _, err := s.client()
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

// fill writes all pages.
func (s *story) fill(b byte) error {
	s.Helper()
	return s.use(func(c *Client) error {
		_, err := c.WriteAt(bytes.Repeat([]byte{b}, modelPage*s.pages), 0)
		return errors.Join(err, c.Sync())
	})
}

// plug cuts a server off from all, or plugs it in again.
func (s *story) plug(server int, in bool) {
	by := 1
	if in {
		by = -1
	}
	s.set(func() {
		s.cut[[2]string{"client", s.servers[server].node}] += by
		s.cut[[2]string{s.servers[server].node, "client"}] += by
	})
}

// wantAll checks that a new client reads nothing but b.
func (s *story) wantAll(what string, b byte) {
	s.Helper()
	got := make([]byte, modelPage*s.pages)
	err := s.use(func(c *Client) error { _, err := c.ReadAt(got, 0); return err })
	if other := bytes.IndexFunc(got, func(r rune) bool { return byte(r) != b }); err != nil || other >= 0 {
		s.Errorf("%s: %v, and byte %d is %d, not %d", what, err, other, got[max(0, other)], b)
	}
}

// wantComplete waits until a client sees all servers complete.
func (s *story) wantComplete() {
	s.Helper()
	should.OK(s, s.use(func(c *Client) error { wantComplete(s.T, c); return nil }))
}

const storyPages = 24

// TestAcknowledgedWhileAway: what was acknowledged while a server was away is read after it is back
// and the writer is gone, from either server alone.
func TestAcknowledgedWhileAway(t *testing.T) {
	for away := range 2 {
		tell(t, 2, storyPages, func(s *story) {
			must.OK(s, s.fill(1))
			s.plug(away, false)
			must.OK(s, s.fill(2)) // with one of two servers
			s.plug(away, true)
			s.wantAll("at once", 2)
			s.wantComplete()
			s.kill(s.servers[1-away])
			s.wantAll("from the server that was away", 2)
		})
	}
}

// TestNoStore: while the store does not answer, a client goes on for a lease, and then reads no page: it does not know
// whether others have gone on without the server. It is open again to all once the store is.
func TestNoStore(t *testing.T) {
	tell(t, 2, storyPages, func(s *story) {
		must.OK(s, s.fill(1))
		c, _ := must.Two(s.client())(s)
		got := make([]byte, 1)
		must.Get(c.ReadAt(got, 0))(s)
		cut := func(by int) { s.set(func() { s.cut[[2]string{"client", storeNode}] += by }) }
		cut(1)
		time.Sleep(lease)
		_, err := c.ReadAt(got, modelPage)
		should.Fail(s, err, ErrUnavailable, "a read without the store")
		should.Fail(s, err, ErrNoStore, "a read without the store")
		_, _, err = s.client()
		should.Fail(s, err, ErrNoStore, "a client without the store")
		cut(-1)
		if _, err := c.ReadAt(got, 2*modelPage); err != nil || got[0] != 1 {
			s.Errorf("with the store again: %d, %v", got[0], err)
		}
	})
}

// TestTwoWriters: after one client has gone on without the second server, another cannot go on
// without the first, and no write of either is lost.
func TestTwoWriters(t *testing.T) {
	tell(t, 2, storyPages, func(s *story) {
		must.OK(s, s.fill(1))
		s.plug(1, false)
		must.OK(s, s.fill(2))
		s.plug(0, false)
		s.plug(1, true)
		writer, _, err1 := s.client()
		reader, _, err2 := s.client()
		must.OK(s, errors.Join(err1, err2))
		var both sync.WaitGroup
		both.Go(func() {
			_, err := writer.WriteAt(bytes.Repeat([]byte{3}, modelPage), 0)
			if err := errors.Join(err, writer.Sync()); err == nil {
				s.Error("a write that only the server took which had missed some")
			}
		})
		both.Go(func() {
			got := make([]byte, 1)
			if _, err := reader.ReadAt(got, 0); err == nil {
				s.Errorf("a read from the server that had missed some: %d", got[0])
			}
		})
		both.Wait()
		should.Fail(s, errors.Join(reader.Close(), writer.Close()), ErrUnavailable, "closing the writer")
		s.plug(0, true)
		s.wantComplete()
		s.wantAll("after all", 2)
	})
}
