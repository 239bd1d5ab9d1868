package pager_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/netmem/internal/pager"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// links makes both ends of a link.
func links(t testing.TB) (a, b *pager.Link) {
	t.Helper()
	a, file, err := pager.NewLinks()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err = pager.OpenLink(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func soon() time.Time { return time.Now().Add(10 * time.Second) }

// TestFailure: what an error wraps is still found on the other side.
func TestFailure(t *testing.T) {
	leaktest.Check(t)
	a, b := links(t)
	sent := fmt.Errorf("read page 7: %w", errors.Join(os.ErrPermission, fmt.Errorf("%w: late", pager.ErrDeadline)))
	if err := a.Send(pager.Message{Kind: pager.KindFailed, Failure: pager.NewFailure(sent)}, soon()); err != nil {
		t.Fatal(err)
	}
	m, fds, err := b.Receive(soon())
	if err != nil || len(fds) != 0 || m.Failure.Error() != sent.Error() {
		t.Fatalf("%+v, %v, %v", m, fds, err)
	}
	for _, cause := range []error{os.ErrPermission, pager.ErrDeadline} {
		if !errors.Is(m.Failure, cause) {
			t.Errorf("%v is not found", cause)
		}
	}
	if errors.Is(m.Failure, pager.ErrSource) {
		t.Error("what was not wrapped is found")
	}
}

// TestLinkEnds: a link whose other end is closed, or where nobody sends, says so.
func TestLinkEnds(t *testing.T) {
	leaktest.Check(t)
	a, b := links(t)
	if _, _, err := a.Receive(time.Now().Add(10 * time.Millisecond)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nobody sends: %v", err)
	}
	b.Close()
	if _, _, err := a.Receive(soon()); !errors.Is(err, io.EOF) {
		t.Errorf("closed: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pager.OpenLink(fd); !errors.Is(err, pager.ErrLink) {
		t.Errorf("a pipe: %v", err)
	}
}

// TestStrangeDescriptors: what comes with a mapping must be what it should be.
func TestStrangeDescriptors(t *testing.T) {
	leaktest.Check(t)
	a, b := links(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd := int(r.Fd())
	guard := pager.Message{Kind: pager.KindGuard, Version: pager.LinkVersion, Base: 1 << 20, Size: 1 << 20, Deadline: time.Second}
	if err := a.Send(guard, soon(), fd, fd, fd); err != nil {
		t.Fatal(err)
	}
	if err := pager.Serve(t.Context(), b, nil); err == nil {
		t.Error("pipes are taken for memory")
	}
	if err := a.Send(guard, soon(), fd); err != nil {
		t.Fatal(err)
	}
	if err := pager.Serve(t.Context(), b, nil); !errors.Is(err, pager.ErrLink) {
		t.Errorf("too few: %v", err)
	}
	if err := a.Send(pager.Message{Kind: pager.KindSync}, soon()); err != nil {
		t.Fatal(err)
	}
	if err := pager.Serve(t.Context(), b, nil); !errors.Is(err, pager.ErrLink) {
		t.Errorf("a request before anything else: %v", err)
	}
}

// FuzzMessage: whatever a process is told, it gets a message that makes sense or an error.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		`{"Kind":"open","Version":2,"Local":1048576,"Deadline":5000000000}`,
		`{"Kind":"opened","Size":4096,"PageSize":4096}`,
		`{"Kind":"guard","Version":2,"Base":4096,"Size":4096,"Deadline":1}`,
		`{"Kind":"map","Base":18446744073709547520,"Size":8192}`,
		`{"Kind":"failed"}`, `{"Kind":"done","ID":1,"Stats":{"Missed":3}}`, `{`, ``,
	} {
		f.Add([]byte(s), uint8(0))
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, fds uint8) {
		m, err := pager.Parse(b, int(fds))
		if err != nil {
			if !errors.Is(err, pager.ErrLink) {
				t.Fatalf("%v", err)
			}
			return
		}
		switch m.Kind {
		case pager.KindGuard, pager.KindMap:
			if fds != 3 || m.Base == 0 || m.Base+uint64(m.Size) < m.Base {
				t.Fatalf("%+v with %d descriptors", m, fds)
			}
		case pager.KindOpen:
			if m.Deadline <= 0 || m.Local < 0 || m.Ahead < 0 || m.Version != pager.LinkVersion {
				t.Fatalf("%+v", m)
			}
		case pager.KindFailed:
			if m.Failure == nil {
				t.Fatal("a failure without a reason")
			}
		}
	})
}
