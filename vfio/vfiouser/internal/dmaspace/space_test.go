package dmaspace_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/dmaspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	page = dmaspace.PageSize
	both = vfio.DMARead | vfio.DMAWrite
)

// memfd makes a file of pages in memory. Flags are those of memfd_create.
func memfd(t testing.TB, pages int, flags int) int {
	t.Helper()
	fd := must.Get(unix.MemfdCreate("trapeze-space-test", unix.MFD_CLOEXEC|flags))(t)
	t.Cleanup(func() { _ = unix.Close(fd) })
	must.OK(t, unix.Ftruncate(fd, int64(pages)*page))
	return fd
}

// newSpace makes a space, and checks that nothing is left of it in the end.
func newSpace(t testing.TB, l dmaspace.Limits) *dmaspace.Space {
	t.Helper()
	before := mappings(t)
	s := dmaspace.New(l)
	t.Cleanup(func() {
		s.Clear()
		holds(t, s, 0, 0)
		should.Be(t, mappings(t), before, "mappings")
	})
	return s
}

// mapped maps a range, and returns its memory.
func mapped(t testing.TB, s *dmaspace.Space, r dmaspace.Range, fd int) []byte {
	t.Helper()
	window, _, err := s.Map(r, fd)
	must.OK(t, err)
	return window
}

// mappings counts the mappings of this process that are files of these tests.
func mappings(t testing.TB) int {
	t.Helper()
	b := must.Get(os.ReadFile("/proc/self/maps"))(t)
	return bytes.Count(b, []byte("trapeze-space-test"))
}

// reopen opens a file once more, with other access rights.
func reopen(t *testing.T, fd, mode int) int {
	t.Helper()
	again := must.Get(unix.Open(filepath.Join("/proc/self/fd", strconv.Itoa(fd)), mode|unix.O_CLOEXEC, 0))(t)
	t.Cleanup(func() { _ = unix.Close(again) })
	return again
}

func TestMap(t *testing.T) {
	s := newSpace(t, dmaspace.DefaultLimits())
	fd := memfd(t, 8, unix.MFD_ALLOW_SEALING)
	file := must.Get(unix.Mmap(fd, 0, 8*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	defer unix.Munmap(file)
	a := mapped(t, s, dmaspace.Range{Address: 0, Size: page, Offset: 2 * page, Flags: both}, fd)
	b := mapped(t, s, dmaspace.Range{Address: page, Size: 2 * page, Offset: 3 * page, Flags: both}, fd)
	should.Hold(t, len(a) == page && cap(a) == page && len(b) == 2*page && cap(b) == 2*page, "%d and %d bytes", len(a), len(b))
	// The file is mapped once, so neighbours in it are neighbours here.
	should.Be(t, address(b), address(a)+page)
	should.Be(t, mappings(t), 2, "mappings, one of which is the test's")
	copy(a, "through the first")
	copy(file[5*page-4:], "last")
	should.Hold(t, bytes.HasPrefix(file[2*page:], []byte("through the first")) && string(b[2*page-4:]) == "last",
		"the memory is not that of the file")
	// It is a client's memory without its descriptor, and cannot be cut off.
	should.Fail(t, unix.Ftruncate(fd, 0), unix.EPERM, "truncating")
	if ranges, bytes, memory, err := s.Inside(0, 3*page-1); ranges != 2 || bytes != 3*page || memory != 3*page || err != nil {
		t.Errorf("Inside: %d, %#x, %#x, %v", ranges, bytes, memory, err)
	}
	should.OK(t, s.Unmap(0, page-1))
	holds(t, s, 1, 1)
}

func TestMapRefuses(t *testing.T) {
	limits := dmaspace.Limits{Ranges: 4, Files: 2, Bytes: 24 * page}
	s := newSpace(t, limits)
	fd := memfd(t, 8, unix.MFD_ALLOW_SEALING)
	other, large, third := memfd(t, 8, 0), memfd(t, 9, 0), memfd(t, 1, 0)
	for _, r := range []dmaspace.Range{
		{Address: 0x10000, Size: 2 * page, Offset: 0, Flags: both},
		{Address: 0x14000, Size: page, Offset: 4 * page, Flags: both},
	} {
		mapped(t, s, r, fd)
	}
	disk := must.Get(os.Create(filepath.Join(t.TempDir(), "disk")))(t)
	defer disk.Close()
	must.OK(t, disk.Truncate(8*page))
	var fs unix.Statfs_t
	must.OK(t, unix.Fstatfs(int(disk.Fd()), &fs))
	var pipe [2]int
	must.OK(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	shm := must.Get(os.Open("/dev/shm"))(t)
	defer shm.Close()
	readOnly, writeOnly := reopen(t, fd, unix.O_RDONLY), reopen(t, fd, unix.O_WRONLY)
	free := dmaspace.Range{Address: 0x20000, Size: page, Flags: both}
	tests := []struct {
		name string
		r    dmaspace.Range
		fd   int
		want error
	}{
		{"misaligned address", dmaspace.Range{Address: 0x20800, Size: page, Flags: both}, fd, vfio.ErrMisaligned},
		{"misaligned size", dmaspace.Range{Address: 0x20000, Size: page + 1, Flags: both}, fd, vfio.ErrMisaligned},
		{"misaligned offset", dmaspace.Range{Address: 0x20000, Size: page, Offset: 1, Flags: both}, fd, vfio.ErrMisaligned},
		{"empty", dmaspace.Range{Address: 0x20000, Flags: both}, fd, vfio.ErrMisaligned},
		{"address wraps", dmaspace.Range{Address: math.MaxUint64 - page + 1, Size: 2 * page, Flags: both}, fd, vfio.ErrIOVARange},
		{"offset wraps", dmaspace.Range{Address: 0x20000, Size: 2 * page, Offset: math.MaxUint64 - page + 1, Flags: both}, fd, vfio.ErrIOVARange},
		{"overlaps the end", dmaspace.Range{Address: 0x11000, Size: 2 * page, Flags: both}, fd, vfio.ErrIOVAInUse},
		{"overlaps the start", dmaspace.Range{Address: 0xf000, Size: 2 * page, Flags: both}, fd, vfio.ErrIOVAInUse},
		{"lies within", dmaspace.Range{Address: 0x11000, Size: page, Offset: page, Flags: both}, fd, vfio.ErrIOVAInUse},
		{"contains", dmaspace.Range{Address: 0xf000, Size: 6 * page, Flags: both}, fd, vfio.ErrIOVAInUse},
		{"same range elsewhere in the file", dmaspace.Range{Address: 0x10000, Size: 2 * page, Offset: page, Flags: both}, fd, vfio.ErrIOVAInUse},
		{"same range of another file", dmaspace.Range{Address: 0x10000, Size: 2 * page, Flags: both}, other, vfio.ErrIOVAInUse},
		{"same range without file", dmaspace.Range{Address: 0x10000, Size: 2 * page, Flags: both}, -1, vfio.ErrIOVAInUse},
		{"same range with other rights", dmaspace.Range{Address: 0x10000, Size: 2 * page, Flags: vfio.DMARead}, fd, vfio.ErrIOVAInUse},
		{"longer than the file", dmaspace.Range{Address: 0x20000, Size: 9 * page, Flags: both}, fd, dmaspace.ErrFile},
		{"behind the end of the file", dmaspace.Range{Address: 0x20000, Size: page, Offset: 8 * page, Flags: both}, fd, dmaspace.ErrFile},
		{"far behind the end of the file", dmaspace.Range{Address: 0x20000, Size: page, Offset: 1 << 62, Flags: both}, fd, dmaspace.ErrFile},
		{"pipe", free, pipe[0], dmaspace.ErrFile},
		{"folder", free, int(shm.Fd()), dmaspace.ErrFile},
		{"closed descriptor", free, 1 << 20, dmaspace.ErrFile},
		{"writable range of a file that is not", free, readOnly, dmaspace.ErrFile},
		{"file that cannot be read", free, writeOnly, dmaspace.ErrFile},
		{"more than the bytes that are allowed", free, large, dmaspace.ErrFull},
	}
	if fs.Type != unix.TMPFS_MAGIC {
		tests = append(tests, struct {
			name string
			r    dmaspace.Range
			fd   int
			want error
		}{"file on a disk", free, int(disk.Fd()), dmaspace.ErrFile})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.fd == large {
				// 8 pages are mapped, 8 more, and 9 do not fit 24.
				mapped(t, s, dmaspace.Range{Address: 0x30000, Size: page, Flags: both}, other)
				defer func() { should.OK(t, s.Unmap(0x30000, 0x30fff)) }()
			}
			before, files := s.Size()
			window, again, err := s.Map(tt.r, tt.fd)
			should.Hold(t, window == nil && !again && errors.Is(err, tt.want), "got %d bytes, %v, want %v", len(window), err, tt.want)
			holds(t, s, before, files)
		})
	}
	for i, fd := range []int{other, third} {
		_, _, err := s.Map(dmaspace.Range{Address: 0x40000 + uint64(i)*page, Size: page, Flags: both}, fd)
		should.Be(t, errors.Is(err, dmaspace.ErrFull), i == 1, "file %d", i+2)
	}
	for i := range 3 {
		_, _, err := s.Map(dmaspace.Range{Address: 0x50000 + uint64(i)*page, Size: page, Flags: both}, -1)
		should.Be(t, errors.Is(err, dmaspace.ErrFull), i >= 1, "range %d", i+4)
	}
}

func TestMapAgain(t *testing.T) {
	s := newSpace(t, dmaspace.DefaultLimits())
	fd := memfd(t, 2, 0)
	r := dmaspace.Range{Address: 0x1000, Size: page, Offset: page, Flags: both}
	window, again, err := s.Map(r, fd)
	must.Hold(t, err == nil && !again, "%v, %v", again, err)
	twice, again, err := s.Map(r, reopen(t, fd, unix.O_RDWR))
	should.Hold(t, err == nil && again && address(twice) == address(window), "the same again: %v, %v", again, err)
	r.Address = 0x8000
	for _, want := range []bool{false, true} {
		w, again, err := s.Map(r, -1)
		should.Hold(t, w == nil && again == want && err == nil, "without file: %v, %v, %v", w, again, err)
	}
	holds(t, s, 2, 1)
}

// holds claims how many ranges and files a space has.
func holds(t testing.TB, s *dmaspace.Space, ranges, files int) {
	t.Helper()
	r, f := s.Size()
	should.Hold(t, r == ranges && f == files, "%d ranges and %d files, want %d and %d", r, f, ranges, files)
}

// TestFileGrows: what is added to a file later can be mapped too.
func TestFileGrows(t *testing.T) {
	s := newSpace(t, dmaspace.DefaultLimits())
	fd := memfd(t, 1, 0)
	mapped(t, s, dmaspace.Range{Address: 0, Size: page, Flags: both}, fd)
	must.OK(t, unix.Ftruncate(fd, 2*page))
	w := mapped(t, s, dmaspace.Range{Address: page, Size: page, Offset: page, Flags: both}, fd)
	w[0] = 1
	_, f := s.Size()
	should.Hold(t, f == 2, "%d files", f)
	should.OK(t, s.Unmap(0, page-1))
	w[page-1] = 1
	_, f = s.Size()
	should.Hold(t, f == 1, "%d files", f)
}

func TestReadOnly(t *testing.T) {
	s := newSpace(t, dmaspace.DefaultLimits())
	fd := memfd(t, 2, 0)
	w := mapped(t, s, dmaspace.Range{Address: 0, Size: page, Flags: vfio.DMARead}, reopen(t, fd, unix.O_RDONLY))
	should.Be(t, w[0], 0, "not readable")
	// The same file for writing is another mapping.
	w = mapped(t, s, dmaspace.Range{Address: page, Size: page, Flags: vfio.DMAWrite}, fd)
	w[0] = 1
	_, f := s.Size()
	should.Hold(t, f == 2, "%d files", f)
}
