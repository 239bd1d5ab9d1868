// Package outfile writes a file that is either there whole or not at all.
package outfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// File is written under a hidden name beside the one that it will have. Commit gives it that name;
// Discard removes it.
type File struct {
	*os.File
	path    string
	replace bool
	settled bool
}

// ErrNotRegular says that a device, a pipe, a socket or a symbolic link stands
// there. It could only be replaced by removing it, which no user who names one
// wants: root would lose /dev/null.
var ErrNotRegular = errors.New("not a regular file")

// Check says whether Create and Commit for path are likely to succeed: it fails
// with an error that wraps fs.ErrExist if something stands there and replace is
// not set, and in any case if that is a directory, or with ErrNotRegular; and if
// there is no directory for it that this process may write to.
func Check(path string, replace bool) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case st.IsDir():
		return &fs.PathError{Op: "create", Path: path, Err: unix.EISDIR}
	case !st.Mode().IsRegular():
		return &fs.PathError{Op: "create", Path: path, Err: ErrNotRegular}
	case !replace:
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	return CheckDirectory(filepath.Dir(path))
}

// Explain says of an error of Check, Create or Commit which flag named the file, and
// what can be done about a file that stands in the way.
func Explain(flag string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s: %w (choose another name, or replace it with --force)", flag, err)
	case errors.Is(err, ErrNotRegular):
		return fmt.Errorf("%s: %w (give the path of a file, or that which a link leads to)", flag, err)
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// CheckDirectory says whether files can be made in a directory: it fails with an
// errno if there is none, or this process may not write to it.
func CheckDirectory(dir string) error {
	// The slash has files refused.
	if err := unix.Faccessat(unix.AT_FDCWD, dir+"/", unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "create a file in", Path: dir, Err: err}
	}
	return nil
}

// Create starts writing the file that will stand at path with the permission
// bits of mode that the process's umask leaves. Unless replace is set, a file
// that stands there by the time of Commit is kept and Commit fails.
func Create(path string, mode fs.FileMode, replace bool) (*File, error) {
	if err := Check(path, replace); err != nil {
		return nil, err
	}
	base := filepath.Base(path)
	base = base[:min(len(base), 200)] // so that the name is not too long
	f, err := os.OpenFile(filepath.Join(filepath.Dir(path), "."+base+".trapeze-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm())
	if err != nil {
		return nil, err
	}
	return &File{File: f, path: path, replace: replace}, nil
}

// Write writes a whole file: Create, the content, and Commit.
func Write(path string, mode fs.FileMode, replace bool, content []byte) error {
	return write(path, mode, replace, content, false)
}

// Replace is Write in the place of a file that may stand there, with the permissions mode whatever
// the umask is: other users read the files of a service.
func Replace(path string, mode fs.FileMode, content []byte) error {
	return write(path, mode, true, content, true)
}

func write(path string, mode fs.FileMode, replace bool, content []byte, exact bool) error {
	f, err := Create(path, mode, replace)
	if err != nil {
		return err
	}
	if exact {
		err = f.Chmod(mode.Perm())
	}
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Commit()
	}
	return errors.Join(err, f.Discard())
}

// Commit makes the content durable and gives the file its name, in one step
// that other processes see happen or not happen. On error the file is still to
// be discarded.
func (f *File) Commit() error {
	if f.settled {
		return fmt.Errorf("commit %s: %w", f.path, fs.ErrClosed)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.rename(); err != nil {
		return err
	}
	f.settled = true
	// The content is on the disk. An error of closing adds nothing to that, and
	// one of syncing the directory leaves either the old state or the new.
	_ = f.Close()
	if d, err := os.Open(filepath.Dir(f.path)); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
	return nil
}

// rename gives the file its name.
func (f *File) rename() error {
	if f.replace {
		// Something else may stand there by now.
		if err := Check(f.path, true); err != nil {
			return err
		}
		return os.Rename(f.Name(), f.path)
	}
	err := unix.Renameat2(unix.AT_FDCWD, f.Name(), unix.AT_FDCWD, f.path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// The file system cannot. A link does not replace anything either.
		if err = os.Link(f.Name(), f.path); err == nil {
			err = os.Remove(f.Name())
		}
		return err
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: f.Name(), New: f.path, Err: err}
	}
	return nil
}

// Discard removes the file if it has not been committed. It may be called
// again, and while a Write is under way, which then fails.
func (f *File) Discard() error {
	if f.settled {
		return nil
	}
	f.settled = true
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
