package vfio

import (
	"bufio"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// TestAccessible: asked for addresses and asked for all lines, the kernel says the same.
// Kernels before Linux 6.11 know the second way only.
func TestAccessible(t *testing.T) {
	const pages = 6
	page := os.Getpagesize()
	b := must.Get(unix.Mmap(-1, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	defer func() { should.OK(t, unix.Munmap(b)) }()
	for i, protection := range map[int]int{1: unix.PROT_READ, 3: unix.PROT_NONE, 4: unix.PROT_READ} {
		must.OK(t, unix.Mprotect(b[i*page:(i+1)*page], protection))
	}
	fd := must.Get(unix.Open("/proc/self/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	start := (&Memory{b: b}).Address()
	for first := range pages {
		for end := first + 1; end <= pages; end++ {
			from, last := start+uint64(first*page), start+uint64(end*page)-1
			must.Get(unix.Seek(fd, 0, 0))(t)
			flags, at, err := findAccessible(bufio.NewScanner(descriptor(fd)), from, last)
			want := DMARead | DMAWrite
			switch {
			case first <= 3 && end > 3:
				want = 0
			case first <= 1 && end > 1, first <= 4 && end > 4:
				want = DMARead
			}
			if flags != want || (want == 0) != errors.Is(err, ErrNotMapped) {
				t.Errorf("pages %d to %d: flags %d, want %d, %v", first, end-1, flags, want, err)
			}
			asked, askedAt, askedErr := askAccessible(fd, from, last)
			if askedErr == unix.ENOTTY {
				continue // an older kernel
			}
			if asked != flags || askedAt != at || askedErr != err {
				t.Errorf("pages %d to %d: %d, %#x, %v; asked for addresses %d, %#x, %v", first, end-1, flags, at, err, asked, askedAt, askedErr)
			}
		}
	}
}
