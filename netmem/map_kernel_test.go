package netmem_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/netmem"
)

// TestSystemCalls: the kernel's accesses wait for pages as the program's do, where it reports
// them; elsewhere they fail, and change nothing.
func TestSystemCalls(t *testing.T) {
	const page = 4 << 10
	content := random(64*page, 9)
	s := newSource(t, page, content)
	m := open(t, s, netmem.MapOptions{Local: 16 * page})
	fd := must.Get(unix.MemfdCreate("trapeze-test", unix.MFD_CLOEXEC))(t)
	defer unix.Close(fd)
	n, err := unix.Pwrite(fd, m.Bytes()[:40*page], 0)
	if m.UserModeOnly() {
		should.Fail(t, err, unix.EFAULT, "%d", n)
		return
	}
	if err != nil || n != 40*page {
		t.Fatal(n, err)
	}
	if n, err = unix.Pread(fd, m.Bytes()[20*page:60*page], 0); err != nil || n != 40*page {
		t.Fatal(n, err)
	}
	copy(content[20*page:60*page], bytes.Clone(content[:40*page]))
	should.Same(t, m.Bytes(), content, "the memory is not what was read into it")
}

// TestRemoved: an application that frees pages behind the pager's back is told what it did,
// instead of waiting for ever or reading zeros.
func TestRemoved(t *testing.T) {
	const page = 4 << 10
	s := newSource(t, page, random(64*page, 9))
	m := open(t, s, netmem.MapOptions{Local: 32 * page, Ahead: -1})
	m.Bytes()[0]++
	must.OK(t, unix.Madvise(m.Bytes()[:page], unix.MADV_REMOVE))
	should.Fail(t, m.Do(func() { _ = copy(make([]byte, 8), m.Bytes()) }), netmem.ErrPagesRemoved)
}

// TestDropped: pages that the application only asks the kernel to unmap come back as they were.
func TestDropped(t *testing.T) {
	const page = 4 << 10
	content := random(64*page, 9)
	s := newSource(t, page, content)
	m := open(t, s, netmem.MapOptions{Local: 32 * page, Ahead: -1})
	for round := range 3 {
		for at := range 8 {
			m.Bytes()[at*page+round]++
			content[at*page+round]++
		}
		must.OK(t, unix.Madvise(m.Bytes()[:16*page], unix.MADV_DONTNEED))
		must.Same(t, m.Bytes()[:20*page], content[:20*page], "the pages are not what they")
		must.OK(t, m.Sync(t.Context()))
	}
	must.OK(t, m.Close())
	s.want(t, content)
}

// TestGuardKilled: without its guard a mapping ends too.
func TestGuardKilled(t *testing.T) {
	s := newSource(t, 4<<10, random(64<<12, 9))
	m := open(t, s, netmem.MapOptions{Local: 64 << 10})
	for pid := range children(t, m.PagerID()) {
		must.OK(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	<-m.Done()
	if err := m.Do(func() {}); !errors.Is(err, netmem.ErrPagerDied) || !strings.Contains(err.Error(), "guard") {
		t.Errorf("%v", err)
	}
}

// children are the processes that another one has started.
func children(t *testing.T, of int) map[int]bool {
	t.Helper()
	entries := must.Get(os.ReadDir(fmt.Sprintf("/proc/%d/task", of)))(t)
	found := map[int]bool{}
	for _, e := range entries {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", of, e.Name()))
		if err != nil {
			continue // the thread has ended; or the kernel does not tell, and nobody is killed
		}
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				found[pid] = true
			}
		}
	}
	if len(found) == 0 && len(entries) > 0 {
		if _, err := os.Stat("/proc/self/task/" + entries[0].Name() + "/children"); err != nil {
			t.Skip("the kernel does not tell who has started whom (CONFIG_PROC_CHILDREN)")
		}
	}
	return found
}

// TestAllocations: the pager's process allocates nothing for a fault.
func TestAllocations(t *testing.T) {
	const page, pages = 4 << 10, 256
	s := newSource(t, page, make([]byte, page*pages))
	s.CountFrom, s.CountTo = 1000, 3000
	m := open(t, s, netmem.MapOptions{Local: 16 * page, Ahead: -1})
	for i := range 3500 {
		m.Bytes()[i*199%pages*page]++
	}
	must.OK(t, m.Close())
	b := must.Get(os.ReadFile(s.Path + ".allocations"))(t)
	n, err := strconv.Atoi(string(b))
	// Those of the watch, which looks at the clock several times in a deadline.
	if err != nil || n > 200 {
		t.Errorf("%d allocations for 2000 faults and as many pages written back, %v", n, err)
	}
	t.Logf("%d allocations", n)
}
