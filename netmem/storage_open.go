package netmem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/filelock"
	"github.com/trapeze-nic/trapeze/internal/outfile"
)

// ErrInUse: another server lends the file.
var ErrInUse = errors.New("another server lends the file")

// lockWait is the time that a server that is about to end may keep the file.
const lockWait = time.Second

// openPages opens the sidecar of a file, and makes one if there is none. Each page that has
// a sum is read once. alone says whether a record is that of one server: then pages that
// have changed are edited, unless the power may have failed, and else damaged.
func openPages(ctx context.Context, data *os.File, page int, pages uint64, readOnly bool, alone func(record []byte) bool) (_ *pageFile, err error) {
	f := &pageFile{
		sideLayout: sideLayout{uint64(page), pages}, data: data, writable: !readOnly,
		entry: make([]byte, block+page), old: make([]byte, page),
	}
	path, err := f.lockData(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.release())
		}
	}()
	f.pages = make([]stamp, pages)
	if err := f.openSide(sideName(path)); err != nil || f.side == nil {
		return f, err
	}
	if err := f.loadSide(); err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	powered := f.state.boot == [16]byte{} || f.state.boot == boot
	if err := f.replay(); err != nil {
		return nil, fmt.Errorf("finish the write that was under way: %w", err)
	}
	adopt := powered && alone(f.state.record)
	for page := range f.pages {
		if err := errors.Join(context.Cause(ctx), f.examine(uint64(page), adopt)); err != nil {
			return nil, err
		}
	}
	to := f.state
	to.boot = boot
	return f, f.save(to, true)
}

// lockData locks the file, through an open file of its own, and returns its name without
// links. Servers for reading only share the lock.
func (f *pageFile) lockData(ctx context.Context) (string, error) {
	st, err := f.data.Stat()
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() && f.writable {
		return "", optionError("File", f.data.Name(), "a regular file, or any with ReadOnly")
	}
	path, err := filepath.EvalSymlinks(f.data.Name())
	if err != nil {
		return "", err
	}
	if f.lock, err = os.Open(path); err != nil {
		return "", err
	}
	if st2, err := f.lock.Stat(); err != nil || !os.SameFile(st, st2) {
		return "", errors.Join(fmt.Errorf("%s is another file by now", path), err, f.lock.Close())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, fmt.Errorf("%w: %s", ErrInUse, path))
	defer cancel()
	lock := filelock.Lock
	if !f.writable {
		lock = filelock.Share
	}
	if err := lock(ctx, int(f.lock.Fd())); err != nil {
		return "", errors.Join(err, f.lock.Close())
	}
	return path, nil
}

// openSide opens the sidecar, made first if there is none. For reading only it may stay nil.
func (f *pageFile) openSide(path string) error {
	flag := os.O_RDWR
	if !f.writable {
		flag = os.O_RDONLY
	}
	side, err := os.OpenFile(path, flag, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if !f.writable {
			return nil
		}
		if err = f.makeSide(path); err == nil {
			side, err = os.OpenFile(path, flag, 0)
		}
	}
	if err == nil {
		f.side = side
	}
	return err
}

// makeSide makes a sidecar that is there whole or not at all. Its room is taken at once, so
// that a disk that is full later refuses no stamp.
func (f *pageFile) makeSide(path string) error {
	st, err := f.data.Stat()
	if err != nil {
		return err
	}
	o, err := outfile.Create(path, st.Mode().Perm(), false)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(o.Fd()), 0, 0, f.size())
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = o.Truncate(f.size())
	}
	if err == nil {
		_, err = o.WriteAt(f.header(), 0)
	}
	if err == nil {
		_, err = o.WriteAt((&sideState{}).encode(), stateAt)
	}
	if err == nil {
		err = o.Commit()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make %s: %w", path, err), o.Discard())
	}
	return nil
}

// loadSide reads the header, the state and the table.
func (f *pageFile) loadSide() error {
	st, err := f.side.Stat()
	if err != nil {
		return err
	}
	head := make([]byte, journalAt)
	n, err := f.side.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var bad *SidecarError
	if err := f.check(head[:n], st.Size()); errors.As(err, &bad) {
		bad.Path = f.side.Name()
		return bad
	}
	var whole bool
	if f.state, whole = parseStates(head[stateAt:]); !whole {
		return &SidecarError{Path: f.side.Name(), Field: "state", Want: "whole in one of its slots"}
	}
	f.base, f.joins = f.state.base, f.state.joins
	table := io.NewSectionReader(f.side, f.tableAt(0), int64(f.count*entrySize))
	b := make([]byte, min(1<<20, f.count*entrySize))
	for page := 0; page < len(f.pages); {
		n, err := io.ReadFull(table, b)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		for at := 0; at+entrySize <= n; at, page = at+entrySize, page+1 {
			f.pages[page] = parseStamp(b[at:])
		}
	}
	return nil
}

// bootID is a number that the system draws when it starts (proc_sys_kernel(5)).
func bootID() (id [16]byte, err error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, err
	}
	var a, c, d, e, g uint64 // a UUID, 36 characters
	if _, err := fmt.Sscanf(string(b), "%8x-%4x-%4x-%4x-%12x", &a, &c, &d, &e, &g); err != nil {
		return id, fmt.Errorf("boot_id: %w", err)
	}
	le.PutUint64(id[:], a<<32|c<<16|d)
	le.PutUint64(id[8:], e<<48|g)
	return id, nil
}
