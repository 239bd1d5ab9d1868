package netmem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/memfile"
	"github.com/trapeze-nic/trapeze/netmem/internal/pager"
	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
)

const (
	// defaultMapDeadline limits a pager's wait for its source, if MapOptions do not say.
	defaultMapDeadline = 5 * time.Second
	// defaultMapAhead is the number of bytes that are read ahead, if MapOptions do not say.
	defaultMapAhead = 2 << 20
)

// MapOptions say how memory is mapped.
type MapOptions struct {
	// Command is a program and its arguments that calls RunPager: the pager, which starts itself once more as
	// its guard.
	Command []string
	// Local is the part of the memory, in bytes, that may be on this machine at a time, at least
	// 16 pages of the source.
	Local int64
	// Ahead is the most that is read ahead of a sequential reader, in bytes; 0 for
	// 2 MiB, negative for none.
	Ahead int64
	// Deadline for each page to be read or written; 0 for 5 s.
	Deadline time.Duration
	// Stderr gets what the command writes there; nil for nothing.
	Stderr io.Writer
}

// Map gives this process a range of memory whose pages come from elsewhere when they are
// touched, and go back when they were written and their place is needed, or at Sync or Close.
// Other processes move the pages: Map starts them with o.Command.
//
// A thread that waits for a page holds its processor (runtime.GOMAXPROCS) meanwhile: programs
// many of whose goroutines wait at the same time give themselves more of them. A garbage collection that
// begins meanwhile waits for the page, up to o.Deadline, and all goroutines wait with it. Programs that
// must not stand still read far pages by Client.ReadAt, which is an ordinary wait. Others touch the memory in a
// process of its own, or with collections off (debug.SetGCPercent(-1) and no memory limit).
//
// It fails with an *Error: with ErrNoUserfaultfd, ErrUserfaultfdRights or
// ErrUserfaultfdTooOld where the kernel does not let this be done, with ErrLocal if o.Local
// makes no sense, and with what the command's source says.
func Map(ctx context.Context, o MapOptions) (*Mapping, error) {
	m, err := newMapping(ctx, o)
	if err != nil {
		return nil, asError("map memory", err)
	}
	return m, nil
}

func newMapping(ctx context.Context, o MapOptions) (_ *Mapping, err error) {
	switch {
	case len(o.Command) == 0:
		return nil, optionError("Command", "empty", "a program that calls RunPager")
	case o.Local <= 0:
		return nil, optionError("Local", o.Local, "at least 16 pages of the source")
	case o.Deadline < 0:
		return nil, optionError("Deadline", o.Deadline, "more than nothing")
	}
	if err := fits(o.Local); err != nil {
		return nil, err
	}
	o.Deadline, o.Ahead = cmp.Or(o.Deadline, defaultMapDeadline), max(0, cmp.Or(o.Ahead, defaultMapAhead))
	object, err := userfault.Open()
	if err != nil {
		return nil, err
	}
	file, err := memfile.Create("netmem", 0, memfile.Options{})
	if err != nil {
		object.Close()
		return nil, err
	}
	m := &Mapping{memory: pager.Memory{File: file, Object: object}, requests: map[uint64]chan pager.Message{}, done: make(chan struct{}), stop: make(chan struct{})}
	defer func() {
		if err != nil {
			m.release(0) // nothing was written
		}
	}()
	if m.pager, err = startProcess(o, &m.memory); err != nil {
		return nil, err
	}
	m.watchers.Go(m.listen)
	opened, err := m.request(ctx, pager.Message{Kind: pager.KindOpen, Version: pager.LinkVersion, Local: o.Local, Ahead: o.Ahead, Deadline: o.Deadline})
	if err != nil {
		return nil, fmt.Errorf("start the pager: %w", err)
	}
	if err := m.reserve(opened.Size, opened.PageSize); err != nil {
		return nil, err
	}
	if _, err = m.request(ctx, pager.Message{Kind: pager.KindMap, Base: m.memory.Base}); err != nil {
		return nil, fmt.Errorf("give the memory to the pager: %w", err)
	}
	return m, nil
}

// reserve gives the file in memory a size and maps it. None of its pages is there, and their faults are reported.
func (m *Mapping) reserve(size int64, page int) error {
	if int64(int(size)) != size {
		return optionError("the size of the source", size, "what an address reaches")
	}
	err := unix.Ftruncate(m.memory.File, size)
	if err != nil {
		return &Error{Op: "make a file in memory", Err: os.NewSyscallError("ftruncate", err), Hint: "ulimit -f unlimited"}
	}
	m.bytes, err = unix.Mmap(m.memory.File, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return &Error{Op: fmt.Sprintf("reserve %d bytes of address space", size), Err: err, Hint: "ulimit -v unlimited"}
	}
	// In a process that is forked faults would not be reported: missing pages would be
	// zeros, there and, as the file is shared, here. And a core dump would fetch everything.
	for _, advice := range []int{unix.MADV_DONTFORK, unix.MADV_DONTDUMP} {
		if err := unix.Madvise(m.bytes, advice); err != nil {
			return os.NewSyscallError("madvise", err)
		}
	}
	// A huge page would fill the place of pages that are not there. A kernel without them
	// does not know the advice.
	if err := unix.Madvise(m.bytes, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return os.NewSyscallError("madvise", err)
	}
	m.mu.Lock() // the pager may end it by now
	m.memory.Base, m.memory.Size = userfault.Address(m.bytes), uint64(size)
	m.mu.Unlock()
	m.page = page
	if err := m.memory.Object.Register(m.bytes); err != nil {
		return err
	}
	if !m.memory.Empty() {
		return &Error{Op: "map memory", Err: ErrMemoryLocked, Hint: "without mlockall(MCL_FUTURE)"}
	}
	return nil
}

// PageSource is where a pager gets pages from, and writes them back to.
type PageSource = pager.Source

// RunPager is called by the command of MapOptions. The process becomes a pager, with the
// pages of the source that open gives, or the guard of one, which has no source. It returns
// when the process that has called Map has closed the mapping, or has ended and what it had
// written is written back, or when the mapping has failed: with nil if that process knows, else
// with the reason. A source that is an io.Closer is closed. The command then exits, whatever goroutines the source may have left.
//
// SIGINT, SIGTERM and SIGHUP are ignored: who stops a service, and all its processes at once,
// has the application close the mapping first. If ctx ends the mapping ends, as by a failure.
func RunPager(ctx context.Context, open func(context.Context) (PageSource, error)) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := pager.Serve(ctx, open)
	if errors.Is(err, pager.ErrLink) {
		err = fmt.Errorf("%w; a pager is started by who maps memory, and not by hand", err)
	}
	return err
}
