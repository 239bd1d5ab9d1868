package pager

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// links makes both ends of a link.
func links(t testing.TB) (a, b *Link) {
	t.Helper()
	a, file := must.Two(NewLinks())(t)
	b = must.Get(openLink(file))(t)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func soon() time.Time { return time.Now().Add(10 * time.Second) }

// TestFailure: what an error wraps is still found on the other side.
func TestFailure(t *testing.T) {
	leaktest.Check(t)
	a, b := links(t)
	sent := fmt.Errorf("read page 7: %w", errors.Join(os.ErrPermission, fmt.Errorf("%w: late", ErrDeadline)))
	must.OK(t, a.Send(Message{Kind: KindFailed, Failure: NewFailure(sent)}, soon()))
	m, err := b.Receive(soon())
	if err != nil || m.Failure.Error() != sent.Error() {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, cause := range []error{os.ErrPermission, ErrDeadline} {
		if !errors.Is(m.Failure, cause) {
			t.Errorf("%v is not found", cause)
		}
	}
	if errors.Is(m.Failure, ErrSource) {
		t.Error("what was not wrapped is found")
	}
}

// TestLinkEnds: a link whose other end is closed, or where nobody sends, says so.
func TestLinkEnds(t *testing.T) {
	leaktest.Check(t)
	a, b := links(t)
	should.Refuse(a.Receive(time.Now().Add(10*time.Millisecond)))(t, os.ErrDeadlineExceeded, "nobody sends")
	b.Close()
	should.Refuse(a.Receive(soon()))(t, io.EOF, "closed")
	r, w := must.Two(os.Pipe())(t)
	defer r.Close()
	defer w.Close()
	should.Refuse(openLink(r))(t, ErrLink, "a pipe")
}

// TestStrangeMessages: what is no message, or makes none, is an error.
func TestStrangeMessages(t *testing.T) {
	leaktest.Check(t)
	a, b := links(t)
	for _, text := range []string{`{`, `[]`, `{"Kind":7}`, `{"Kind":"failed"}`, `{"Kind":"open","Local":1e99}`} {
		must.Get(a.conn.Write([]byte(text)))(t)
		should.Refuse(b.Receive(soon()))(t, ErrLink, "%s", text)
	}
}
