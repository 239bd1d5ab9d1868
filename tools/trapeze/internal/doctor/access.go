package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// mayOpen says why this process may not open a node for reading and writing.
func (h *Host) mayOpen(name string) error {
	refused := func(i fs.FileInfo) error {
		return fmt.Errorf("/%s is not for user %d: mode %v: %w", name, h.Process.uid, i.Mode(), fs.ErrPermission)
	}
	info, err := os.Stat(h.Root.Path(name))
	if err != nil {
		return err
	}
	if h.Root.Live() {
		// The kernel knows better: access lists, read-only mounts.
		err := unix.Faccessat(unix.AT_FDCWD, h.Root.Path(name), unix.R_OK|unix.W_OK, unix.AT_EACCESS)
		if errors.Is(err, unix.EACCES) {
			return refused(info)
		}
		return err
	}
	if h.Process.can(capDACOverride) {
		return nil
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	bits := info.Mode().Perm()
	switch {
	case int(owner.Uid) == h.Process.uid:
		bits >>= 6
	case int(owner.Gid) == h.Process.gid, slices.Contains(h.Process.groups, int(owner.Gid)):
		bits >>= 3
	}
	if bits&6 != 6 {
		return refused(info)
	}
	return nil
}
