package outfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/outfile"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	var s []string
	for _, e := range entries {
		s = append(s, e.Name())
	}
	return s
}

func content(t *testing.T, path string) string {
	t.Helper()
	b := must.Get(os.ReadFile(path))(t)
	return string(b)
}

// TestUmask: the process's umask holds for the mode, as for any new file, but not in Replace.
func TestUmask(t *testing.T) {
	defer unix.Umask(unix.Umask(0o027))
	path := filepath.Join(t.TempDir(), "out")
	f := must.Get(outfile.Create(path, 0o666, false))(t)
	must.OK(t, f.Commit())
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := outfile.Replace(path, 0o646, []byte("new")); err != nil || content(t, path) != "new" {
		t.Errorf("%v, %q", err, content(t, path))
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o646 {
		t.Errorf("replaced: %v, %v", st.Mode(), err)
	}
}

func TestCommit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("n", 255))
	f := must.Get(outfile.Create(path, 0o600|fs.ModeSetuid, false))(t)
	must.Get(f.Write([]byte("content")))(t)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("something stands under the final name before Commit: %v", err)
	}
	must.OK(t, f.Commit())
	should.Be(t, content(t, path), "content", "content")
	if st, _ := os.Stat(path); st.Mode() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}
	if err := f.Discard(); err != nil || len(names(t, dir)) != 1 {
		t.Errorf("Discard after Commit: %v, %v left", err, names(t, dir))
	}
	should.Fail(t, f.Commit(), fs.ErrClosed, "second Commit")
}

func TestDiscard(t *testing.T) {
	dir := t.TempDir()
	f := must.Get(outfile.Create(filepath.Join(dir, "out"), 0o600, false))(t)
	f.Write([]byte("half"))
	for range 2 {
		should.OK(t, f.Discard())
	}
	if n := names(t, dir); len(n) != 0 {
		t.Errorf("left: %v", n)
	}
}

func TestExisting(t *testing.T) {
	write := func(t *testing.T, path, s string) {
		t.Helper()
		must.OK(t, os.WriteFile(path, []byte(s), 0o600))
	}
	t.Run("refused at once", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "out")
		write(t, path, "old")
		should.Refuse(outfile.Create(path, 0o600, false))(t, fs.ErrExist)
		if n := names(t, filepath.Dir(path)); len(n) != 1 {
			t.Errorf("left: %v", n)
		}
	})
	t.Run("refused when it appears meanwhile", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "out")
		f := must.Get(outfile.Create(path, 0o600, false))(t)
		write(t, path, "first")
		f.Write([]byte("second"))
		should.Fail(t, f.Commit(), fs.ErrExist)
		should.OK(t, f.Discard())
		if n := names(t, filepath.Dir(path)); len(n) != 1 || content(t, path) != "first" {
			t.Errorf("left: %v", n)
		}
	})
	t.Run("replaced", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "out")
		write(t, path, "old and longer")
		f := must.Get(outfile.Create(path, 0o600, true))(t)
		f.Write([]byte("new"))
		should.Be(t, content(t, path), "old and longer", "touched before Commit")
		if err := f.Commit(); err != nil || content(t, path) != "new" {
			t.Errorf("%v, %q", err, content(t, path))
		}
	})
	t.Run("directories stay", func(t *testing.T) {
		if err := outfile.Check(t.TempDir(), true); err == nil {
			t.Error("a directory would be replaced")
		}
	})
	t.Run("no such directory", func(t *testing.T) {
		should.Refuse(outfile.Create(filepath.Join(t.TempDir(), "no", "out"), 0o600, false))(t, fs.ErrNotExist)
	})
	t.Run("a file for a directory", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		write(t, path, "")
		for _, err := range []error{outfile.Check(filepath.Join(path, "out"), true), outfile.CheckDirectory(path)} {
			should.Fail(t, err, unix.ENOTDIR)
		}
		should.OK(t, outfile.CheckDirectory(filepath.Dir(path)))
	})
}

// TestNotRegular: what is no regular file stays, whatever the user asks for.
func TestNotRegular(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"dangling link": func(path string) error { return os.Symlink("nowhere", path) },
		"link to a file": func(path string) error {
			return errors.Join(os.WriteFile(path+"-target", []byte("old"), 0o600), os.Symlink(path+"-target", path))
		},
		"link to a device": func(path string) error { return os.Symlink(os.DevNull, path) },
		"pipe":             func(path string) error { return unix.Mkfifo(path, 0o600) },
		"socket": func(path string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			return errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Close(fd))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			must.OK(t, make(path))
			before := names(t, dir)
			for _, replace := range []bool{false, true} {
				should.Refuse(outfile.Create(path, 0o600, replace))(t, outfile.ErrNotRegular, "replace %v", replace)
			}
			should.Same(t, names(t, dir), before)
		})
		t.Run(name+" that appears meanwhile", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out")
			f := must.Get(outfile.Create(path, 0o600, true))(t)
			must.OK(t, make(path))
			should.Fail(t, f.Commit(), outfile.ErrNotRegular)
			should.OK(t, f.Discard())
			if st, err := os.Lstat(path); err != nil || st.Mode().IsRegular() {
				t.Errorf("it was replaced: %v, %v", st, err)
			}
		})
	}
}
