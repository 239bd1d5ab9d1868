package conform

import (
	"reflect"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/script"
)

// mapMemory is NAME BYTES: memory of the program's own, until the check ends.
func (p *play) mapMemory(a *script.Arguments) {
	b := Must(unix.Mmap(-1, 0, int(p.number(a.Words[1])), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(p)
	p.Cleanup(func() { OK(p, unix.Munmap(b)) })
	p.names[a.Words[0]] = reflect.ValueOf(b)
}

// readable is FD MILLISECONDS: whether it can be read within that time.
func (p *play) readable(a *script.Arguments) string {
	list := []unix.PollFd{{Fd: int32(p.number(a.Words[0])), Events: unix.POLLIN}}
	for {
		switch n, err := unix.Poll(list, int(p.number(a.Words[1]))); {
		case err == unix.EINTR:
		case err != nil:
			return err.Error()
		case n == 1:
			return "readable"
		default:
			return "not readable"
		}
	}
}

// consume is FD: it reads eight bytes.
func (p *play) consume(a *script.Arguments) string {
	var b [8]byte
	if n := Must(unix.Read(int(p.number(a.Words[0])), b[:]))(p); n != len(b) {
		return "it is empty"
	}
	return ""
}
