// Package runtimedir is where the sockets of this user's processes are: /run of root, else what
// the login has made (XDG Base Directory Specification).
package runtimedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Root is $RUNTIME_DIRECTORY of a service (systemd.exec(5)), /var/run of root, $XDG_RUNTIME_DIR, or a
// folder in /tmp with the number of the user in its name.
func Root() string { return filepath.Join(path()...) }

// path is Root as the folder that is there already, and the one that is to be made in it, if any.
func path() []string {
	if dir, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":"); dir != "" {
		return []string{dir}
	}
	if os.Geteuid() == 0 {
		return []string{"/var/run"}
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return []string{dir}
	}
	return []string{"/tmp", "trapeze-" + strconv.Itoa(os.Geteuid())}
}

// attempts bounds how often Use makes a folder that others remove.
const attempts = 100

// Use makes a folder below Root, one name after the other, and calls use with it. It does so again if
// use fails since another process has removed the folder meanwhile. It fails with the error of use, and
// if another user could put a socket in the place of one there.
func Use(use func(folder string) error, names ...string) (err error) {
	for range attempts {
		folder, e := makeAll(names)
		if err = e; err == nil {
			err = use(folder)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

func makeAll(names []string) (folder string, err error) {
	all := append(path(), names...)
	for i := 2; i <= len(all); i++ {
		folder = filepath.Join(all[:i]...)
		if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		if err := check(folder); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// Remove removes a folder that Use has made, and those around it, as far as they are empty. The first
// one stays, unless it is in /tmp: others may have mounted it.
func Remove(names ...string) {
	all := append(path(), names...)
	for i := len(all); i > 2 || i == 2 && all[0] == "/tmp"; i-- {
		_ = os.Remove(filepath.Join(all[:i]...)) // it is not empty, or is gone
	}
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
		return fmt.Errorf("%s belongs to another user: remove it, or set XDG_RUNTIME_DIR to a folder of yours", folder)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write to %s", folder)
	}
	return nil
}
