// Package runtimedir is where the sockets of this user's processes are: /run of root, else what
// the login has made (XDG Base Directory Specification).
package runtimedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Root is the folder that is there already: $RUNTIME_DIRECTORY of a service (systemd.exec(5)),
// /var/run of root, $XDG_RUNTIME_DIR, or /tmp.
func Root() string {
	if dir := os.Getenv("RUNTIME_DIRECTORY"); dir != "" {
		return dir
	}
	if os.Geteuid() == 0 {
		return "/var/run"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return dir
	}
	return "/tmp"
}

// Make makes a folder below Root, one name after the other. It fails if another user could put a
// socket in the place of one there.
func Make(names ...string) (string, error) {
	folder := Root()
	for _, name := range names {
		folder = filepath.Join(folder, name)
		if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		if err := check(folder); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// check refuses what is no folder, or one that another user may write to.
func check(folder string) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", folder)
	case !ok || stat.Uid != uint32(os.Geteuid()) && stat.Uid != 0:
		return fmt.Errorf("%s belongs to another user: set XDG_RUNTIME_DIR", folder)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write to %s", folder)
	}
	return nil
}
