package buserror_test

import (
	"errors"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/buserror"
)

const page = 4096

// sink keeps reads from being left out.
var sink byte

// shared returns four pages of a file of which only the first is left.
func shared(t *testing.T) []byte {
	t.Helper()
	fd := must.Get(unix.MemfdCreate("buserror", unix.MFD_CLOEXEC))(t)
	defer unix.Close(fd)
	must.OK(t, unix.Ftruncate(fd, 4*page))
	b := must.Get(unix.Mmap(fd, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() { should.OK(t, unix.Munmap(b)) })
	must.OK(t, unix.Ftruncate(fd, page))
	return b
}

func TestCatch(t *testing.T) {
	b := shared(t)
	tests := []struct {
		name   string
		access func()
		fault  bool
	}{
		{"none", func() {}, false},
		{"what is left", func() { b[0] = b[page-1] }, false},
		{"read", func() { sink = b[page] }, true},
		{"write", func() { b[2*page] = 1 }, true},
		{"atomic", func() { atomic.AddUint32(word(b, page), 1) }, true},
		{"copy from", func() { copy(make([]byte, 2*page), b) }, true},
		{"copy to", func() { copy(b, make([]byte, 4*page)) }, true},
		{"clear", func() { clear(b) }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			deferred := false
			err := buserror.Catch(func() {
				defer func() { deferred = true }()
				tt.access()
			})
			if !deferred {
				t.Error("deferred call has not run")
			}
			if !tt.fault {
				should.OK(t, err)
				return
			}
			var e *buserror.Error
			if !errors.As(err, &e) || !errors.Is(err, buserror.ErrVanished) {
				t.Fatalf("error %v", err)
			}
			if first := address(b); e.Address < first+page || e.Address >= first+4*page {
				t.Errorf("address %#x, the memory is at %#x", e.Address, first)
			}
		})
	}
}

func TestCatchLeavesPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"nil pointer": func() { var p *int; *p = 1 },
		"index":       func() { var s []int; s[len(s)]++ },
		"value":       func() { panic("no") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			err := buserror.Catch(f)
			t.Errorf("returned %v", err)
		})
	}
}

func TestCatchNests(t *testing.T) {
	b := shared(t)
	err := buserror.Catch(func() {
		if err := buserror.Catch(func() { b[page] = 1 }); err == nil {
			t.Error("inner access did not fail")
		}
		b[page] = 1
	})
	if err == nil {
		t.Error("outer access did not fail")
	}
	if debug.SetPanicOnFault(false) {
		t.Error("faults stay panics after Catch")
	}
}

func TestCatchAllocatesNothing(t *testing.T) {
	n := 0
	f := func() { n++ }
	should.Be(t, testing.AllocsPerRun(100, func() { _ = buserror.Catch(f) }), 0, "allocations")
}
