package guest

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// surround fills memory and gives every other page back, so that what is allocated next
// comes to lie between pages of it. check says where they are not as they were.
func surround(t *testing.T, size int) (check func()) {
	t.Helper()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) // a kernel without huge pages refuses it
	page := os.Getpagesize()
	filled := bytes.Repeat([]byte{0xa5}, page)
	for at := 0; at < size; at += page {
		copy(b[at:], filled)
	}
	for at := page; at < size; at += 2 * page {
		if err := unix.Madvise(b[at:at+page], unix.MADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		for at := 0; at < size; at += 2 * page {
			p := b[at : at+page]
			if bytes.Equal(p, filled) {
				continue
			}
			first := 0
			for p[first] == filled[first] {
				first++
			}
			t.Errorf("page %d of what the NIC was not given: % x at %#x", at/page, p[first:min(first+16, page)], first)
		}
	}
}

// TestPairMemory: a NIC writes to what it was given, and not to the pages beside that, even
// where the NIC's own idea of memory beyond a page is wrong (see virtqueue.Options.Layout).
func TestPairMemory(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		l := p.linux(t)
		check := surround(t, 32<<20)
		port := p.open(t, ethernet.Options{})
		flows(t, port, l)
		if err := port.Close(); err != nil {
			t.Error(err)
		}
		check()
	})
}
