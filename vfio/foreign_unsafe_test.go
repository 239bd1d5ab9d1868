package vfio_test

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// anonymous maps pages of the program's own.
func anonymous(t *testing.T, pages, protection int) []byte {
	t.Helper()
	b := must.Get(unix.Mmap(-1, 0, pages*os.Getpagesize(), protection, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	t.Cleanup(func() { should.OK(t, unix.Munmap(b)) })
	return b
}

const readWrite = unix.PROT_READ | unix.PROT_WRITE

var static [1 << 16]byte

func TestOnGoHeap(t *testing.T) {
	large := make([]byte, 1<<20)
	small := new([3]byte)
	for name, c := range map[string]struct {
		b    []byte
		want bool
	}{
		"large":             {large, true},
		"inside of it":      {large[5000:5001], true},
		"small":             {small[:], true},
		"with pointers":     {unsafe.Slice((*byte)(unsafe.Pointer(&t)), 8), true},
		"static":            {static[:], false},
		"inside of it too":  {static[100:101], false},
		"mapped":            {anonymous(t, 2, readWrite), false},
		"mapped, protected": {anonymous(t, 2, unix.PROT_NONE), false},
	} {
		should.Be(t, vfio.OnGoHeap(c.b), c.want, "%s", name)
	}
}

func TestForeignMemory(t *testing.T) {
	checkLeaks(t)
	page := os.Getpagesize()
	heap := make([]byte, 4*page)
	writable, constant, hidden := anonymous(t, 3, readWrite), anonymous(t, 3, unix.PROT_READ), anonymous(t, 3, unix.PROT_NONE)
	mixed, hole := anonymous(t, 3, readWrite), anonymous(t, 3, readWrite)
	for _, err := range []error{unix.Mprotect(mixed[page:2*page], unix.PROT_READ), unix.Mprotect(hole[page:2*page], unix.PROT_NONE)} {
		must.OK(t, err)
	}
	const both = vfio.DMARead | vfio.DMAWrite
	for name, c := range map[string]struct {
		b     []byte
		flags vfio.DMAFlags
		want  error
	}{
		"nothing":            {nil, 0, vfio.ErrBadSize},
		"Go heap":            {heap, 0, vfio.ErrGoHeap},
		"part of a page":     {writable[:page+1], 0, vfio.ErrMisaligned},
		"inside of a page":   {writable[1 : page+1], 0, vfio.ErrMisaligned},
		"not readable":       {hidden, 0, vfio.ErrNotMapped},
		"not all readable":   {hole, 0, vfio.ErrNotMapped},
		"behind what is not": {hole[2*page:], both, nil},
		"before what is not": {hole[:page], both, nil},
		"writable":           {writable, both, nil},
		"constant":           {constant, vfio.DMARead, nil},
		"partly constant":    {mixed, vfio.DMARead, nil},
		"one page of it":     {mixed[2*page:], both, nil},
	} {
		m, flags, err := vfio.ForeignMemory(c.b)
		if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) || (m != nil) != (err == nil) || flags != c.flags {
			t.Errorf("%s: %v, flags %d", name, err, flags)
			continue
		}
		if err != nil {
			continue
		}
		if m.Address() != uint64(uintptr(unsafe.Pointer(&c.b[0]))) || m.Size() != uint64(len(c.b)) || m.FD() != -1 || m.PageSize() != uint64(page) || m.Locked() {
			t.Errorf("%s: %#x bytes at %#x, file %d", name, m.Size(), m.Address(), m.FD())
		}
		should.Fail(t, m.Move(0, 0), vfio.ErrNotSupported, "%s: moved", name)
		err = errors.Join(m.Close(), m.Close())
		should.Hold(t, err == nil && m.Bytes() == nil && m.Address() == 0, "%s: close: %v", name, err)
		_ = c.b[0] // still there
	}
}
