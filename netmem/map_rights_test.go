package netmem_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/netmem"
)

// TestUnprivileged: who is nobody maps memory too, with faults of user mode only.
func TestUnprivileged(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become nobody")
	}
	s := newSource(t, 4<<10, make([]byte, 60<<12))
	const nobody = 65534
	for _, path := range []string{s.Path, s.Path[:strings.LastIndex(s.Path, "/")]} {
		must.OK(t, os.Chown(path, nobody, nobody))
	}
	_, in, line := startMapper(t, s, func(c *exec.Cmd) {
		c.Dir = "/"
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	})
	in.Close()
	switch line {
	case "written true":
	case "written false":
		t.Log("this host lets everybody have faults of the kernel")
	default:
		t.Errorf("%s", line)
	}
}

// TestNoUserfaultfd: where the kernel refuses, Map says what to change.
func TestNoUserfaultfd(t *testing.T) {
	for _, c := range []struct {
		errno syscall.Errno
		want  []string
	}{
		{syscall.EPERM, []string{"no right to use userfaultfd", "vm.unprivileged_userfaultfd=1", "seccomp"}},
		{syscall.ENOSYS, []string{"the kernel has no userfaultfd", "CONFIG_USERFAULTFD=y"}},
	} {
		s := newSource(t, 4<<10, make([]byte, 1<<20))
		_, _, line := startMapper(t, s, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), refuseVariable+"="+errnoText(c.errno)) })
		for _, w := range c.want {
			should.Contain(t, line, w, "%v: does not say", c.errno)
		}
	}
}

// TestLockedMemory: a process that locks what it maps would see zeros, and is refused.
func TestLockedMemory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the limit of locked memory would end the program, which gets no memory of its own")
	}
	s := newSource(t, 4<<10, make([]byte, 1<<20))
	_, _, line := startMapper(t, s, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), lockVariable+"=1") })
	if strings.HasPrefix(line, "mlockall") {
		t.Skip(line)
	}
	if !strings.Contains(line, netmem.ErrMemoryLocked.Error()) && !strings.Contains(line, "userfaultfd") {
		t.Error(line)
	}
}

// TestBadOptions: each has an error that says what is wrong, and leaves nothing behind.
func TestBadOptions(t *testing.T) {
	good := newSource(t, 4<<10, make([]byte, 1<<20))
	bad := func(change func(*fileSource)) []string {
		s := &fileSource{Path: good.Path, Length: good.Length, Page: good.Page}
		change(s)
		return s.command(t)
	}
	for name, c := range map[string]struct {
		options netmem.MapOptions
		want    error
		says    string
	}{
		"no command":           {netmem.MapOptions{Local: 1 << 20}, netmem.ErrOption, "Command"},
		"no such command":      {netmem.MapOptions{Local: 1 << 20, Command: []string{"/nonexistent"}}, os.ErrNotExist, "/nonexistent"},
		"another command":      {netmem.MapOptions{Local: 1 << 20, Command: []string{"/bin/true"}}, netmem.ErrPagerDied, "pager"},
		"no local memory":      {netmem.MapOptions{Command: good.command(t)}, netmem.ErrOption, "Local"},
		"little local memory":  {netmem.MapOptions{Local: 4 << 10, Command: good.command(t)}, netmem.ErrLocal, "at least 65536"},
		"negative deadline":    {netmem.MapOptions{Local: 1 << 20, Deadline: -1, Command: good.command(t)}, netmem.ErrOption, "Deadline"},
		"strange page":         {netmem.MapOptions{Local: 1 << 20, Command: bad(func(s *fileSource) { s.Page = 5000 })}, netmem.ErrPageSource, "5000"},
		"large page":           {netmem.MapOptions{Local: 1 << 20, Command: bad(func(s *fileSource) { s.Page = 1 << 20 })}, netmem.ErrPageSource, "1048576"},
		"half a page":          {netmem.MapOptions{Local: 1 << 20, Command: bad(func(s *fileSource) { s.Length++ })}, netmem.ErrPageSource, "1048577"},
		"nothing":              {netmem.MapOptions{Local: 1 << 20, Command: bad(func(s *fileSource) { s.Length = 0 })}, netmem.ErrPageSource, "0 bytes"},
		"source does not open": {netmem.MapOptions{Local: 1 << 20, Command: bad(func(s *fileSource) { s.Path = "/nonexistent" })}, nil, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := netmem.Map(t.Context(), c.options)
			capable(t, err)
			var e *netmem.Error
			if m != nil || !errors.As(err, &e) || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want %v, which says %q", err, c.want, c.says)
			}
		})
	}
}

// TestOpenEnds: Map waits for a source that never opens as long as its caller does.
func TestOpenEnds(t *testing.T) {
	s := newSource(t, 4<<10, make([]byte, 1<<20))
	s.OpenTakes = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := netmem.Map(ctx, netmem.MapOptions{Local: 1 << 20, Command: s.command(t)})
	capable(t, err)
	if !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
		t.Errorf("%v", err)
	}
}
