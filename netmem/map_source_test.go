package netmem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/netmem"
)

// pagerArgument is the first argument of a run of this test binary as a pager; the second is
// a fileSource.
const pagerArgument = "run-as-pager"

func init() {
	if len(os.Args) != 3 || os.Args[1] != pagerArgument {
		return
	}
	var s fileSource
	err := json.Unmarshal([]byte(os.Args[2]), &s)
	if err == nil {
		err = netmem.RunPager(context.Background(), s.open)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

var errSource = errors.New("the source of the test refuses")

// fileSource has the pages in a file, and their versions in the memory of its process.
type fileSource struct {
	Path   string
	Length int64
	Page   int
	// Pause before each request is answered.
	Pause time.Duration
	// OpenTakes is how long it is until there is a source.
	OpenTakes time.Duration
	// HangReads, HangWrites, FailReads and FailWrites say after how many requests that
	// happens; 0 for never.
	HangReads, HangWrites, FailReads, FailWrites int64
	// CountFrom and CountTo: between these reads the allocations of the process are
	// counted, and stored in the file Path.allocations.
	CountFrom, CountTo int64

	file          *os.File
	memory        []byte
	reads, writes atomic.Int64
	mu            sync.Mutex
	versions      map[uint64]uint64
	allocated     uint64
}

// count counts the allocations of this process.
func (s *fileSource) count(read int64) error {
	var m runtime.MemStats
	switch {
	case s.CountTo == 0:
	case read == s.CountFrom:
		runtime.ReadMemStats(&m)
		s.allocated = m.Mallocs
	case read == s.CountTo:
		runtime.ReadMemStats(&m)
		return os.WriteFile(s.Path+".allocations", strconv.AppendUint(nil, m.Mallocs-s.allocated, 10), 0o600)
	}
	return nil
}

func (s *fileSource) open(ctx context.Context) (netmem.PageSource, error) {
	_ = pause.For(ctx, s.OpenTakes)
	var err error
	s.versions = map[uint64]uint64{}
	s.file, err = os.OpenFile(s.Path, os.O_RDWR, 0)
	return s, err
}

func (s *fileSource) Close() error  { return s.file.Close() }
func (s *fileSource) Size() int64   { return s.Length }
func (s *fileSource) PageSize() int { return s.Page }

func (s *fileSource) Alloc(n int) (_ []byte, err error) {
	s.memory, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	return s.memory, err
}

// version of a page: 1000 for those that were never written.
func (s *fileSource) version(page uint64) uint64 {
	if v, ok := s.versions[page]; ok {
		return v
	}
	return 1000
}

func (s *fileSource) ReadPage(_ context.Context, page uint64, at int) (uint64, error) {
	n := s.reads.Add(1)
	if s.HangReads != 0 && n >= s.HangReads {
		select {} // and minds no context
	}
	if s.FailReads != 0 && n >= s.FailReads {
		return 0, errSource
	}
	if err := s.count(n); err != nil {
		return 0, err
	}
	time.Sleep(s.Pause)
	if _, err := s.file.ReadAt(s.memory[at:at+s.Page], int64(page)*int64(s.Page)); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version(page), nil
}

func (s *fileSource) WritePage(_ context.Context, page uint64, at int, version uint64) (uint64, error) {
	n := s.writes.Add(1)
	if s.HangWrites != 0 && n >= s.HangWrites {
		select {}
	}
	if s.FailWrites != 0 && n >= s.FailWrites {
		return 0, errSource
	}
	time.Sleep(s.Pause)
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.version(page); v != version {
		return 0, fmt.Errorf("page %d is version %d, not %d", page, v, version)
	}
	if _, err := s.file.WriteAt(s.memory[at:at+s.Page], int64(page)*int64(s.Page)); err != nil {
		return 0, err
	}
	s.versions[page] = version + 1
	return version + 1, nil
}

// command makes the command for a pager with this source.
func (s *fileSource) command(t testing.TB) []string {
	t.Helper()
	exe := must.Get(os.Executable())(t)
	b := must.Get(json.Marshal(s))(t)
	return []string{exe, pagerArgument, string(b)}
}

// memoryDir makes a folder in memory, where there is one, for files that need not outlive the system.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "trapeze-netmem-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { should.OK(t, os.RemoveAll(dir)) })
	return dir
}

// newSource makes a file in memory with content, and has the test checked for what it leaves behind.
func newSource(t testing.TB, page int, content []byte) *fileSource {
	t.Helper()
	leaktest.Check(t)
	path := filepath.Join(memoryDir(t), "pages")
	must.OK(t, os.WriteFile(path, content, 0o600))
	return &fileSource{Path: path, Length: int64(len(content)), Page: page}
}

// want checks that the file has some content.
func (s *fileSource) want(t testing.TB, content []byte) {
	t.Helper()
	should.Same(t, must.Get(os.ReadFile(s.Path))(t), content, "the source has not what was written")
}

// capable skips a test, and says why, where memory cannot be mapped.
func capable(t testing.TB, err error) {
	t.Helper()
	for _, reason := range []error{netmem.ErrNoUserfaultfd, netmem.ErrUserfaultfdRights, netmem.ErrUserfaultfdTooOld} {
		if errors.Is(err, reason) {
			t.Skip(err)
		}
	}
}

// open maps the source with so much local memory. It is closed with the test.
func open(t testing.TB, s *fileSource, o netmem.MapOptions) *netmem.Mapping {
	t.Helper()
	o.Command, o.Stderr = s.command(t), os.Stderr
	if o.Deadline == 0 { // a pager that only waits for its turn is not stuck
		o.Deadline = 30 * time.Second
	}
	m, err := netmem.Map(t.Context(), o)
	capable(t, err)
	must.OK(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}
