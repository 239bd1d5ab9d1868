package outfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/outfile"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var s []string
	for _, e := range entries {
		s = append(s, e.Name())
	}
	return s
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// both runs a test with files that have no name until they are committed, where the
// file system has them, and with hidden ones.
func both(t *testing.T, test func(t *testing.T)) {
	t.Run("nameless", test)
	t.Run("hidden", func(t *testing.T) {
		outfile.WithoutNameless(t)
		test(t)
	})
}

// TestNothingHasAName: a process that is killed before Commit leaves nothing.
func TestNothingHasAName(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_WRONLY|unix.O_TMPFILE, 0o600)
	if err != nil {
		t.Skipf("the file system of %s has no files without a name: %v", dir, err)
	}
	unix.Close(fd)
	path := filepath.Join(dir, "out")
	for range 2 { // the second time replaces
		before := names(t, dir)
		f, err := outfile.Create(path, 0o600, true)
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte("half"))
		if after := names(t, dir); !slices.Equal(after, before) {
			t.Errorf("before Commit there are %v, %v more than before", after, before)
		}
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
		if n := names(t, dir); !slices.Equal(n, []string{"out"}) {
			t.Errorf("after Commit there are %v", n)
		}
	}
}

// TestUmask: the process's umask holds for the mode, as for any new file, but not in Replace.
func TestUmask(t *testing.T) {
	defer unix.Umask(unix.Umask(0o027))
	both(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "out")
		f, err := outfile.Create(path, 0o666, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode() != 0o640 {
			t.Errorf("%v, %v", st.Mode(), err)
		}
		if err := outfile.Replace(path, 0o646, []byte("new")); err != nil || content(t, path) != "new" {
			t.Errorf("%v, %q", err, content(t, path))
		}
		if st, err := os.Stat(path); err != nil || st.Mode() != 0o646 {
			t.Errorf("replaced: %v, %v", st.Mode(), err)
		}
	})
}

func TestCommit(t *testing.T) { both(t, testCommit) }

func testCommit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("n", 255))
	f, err := outfile.Create(path, 0o600|fs.ModeSetuid, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("content")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("something stands under the final name before Commit: %v", err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := content(t, path); got != "content" {
		t.Errorf("content %q", got)
	}
	if st, _ := os.Stat(path); st.Mode() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}
	if err := f.Discard(); err != nil || len(names(t, dir)) != 1 {
		t.Errorf("Discard after Commit: %v, %v left", err, names(t, dir))
	}
	if err := f.Commit(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second Commit: %v", err)
	}
}

func TestDiscard(t *testing.T) { both(t, testDiscard) }

func testDiscard(t *testing.T) {
	dir := t.TempDir()
	f, err := outfile.Create(filepath.Join(dir, "out"), 0o600, false)
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("half"))
	for range 2 {
		if err := f.Discard(); err != nil {
			t.Error(err)
		}
	}
	if n := names(t, dir); len(n) != 0 {
		t.Errorf("left: %v", n)
	}
}

func TestExisting(t *testing.T) { both(t, testExisting) }

func testExisting(t *testing.T) {
	write := func(t *testing.T, path, s string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("refused at once", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "out")
		write(t, path, "old")
		if _, err := outfile.Create(path, 0o600, false); !errors.Is(err, fs.ErrExist) {
			t.Errorf("got %v", err)
		}
		if n := names(t, filepath.Dir(path)); len(n) != 1 {
			t.Errorf("left: %v", n)
		}
	})
	t.Run("refused when it appears meanwhile", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "out")
		f, err := outfile.Create(path, 0o600, false)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, "first")
		f.Write([]byte("second"))
		if err := f.Commit(); !errors.Is(err, fs.ErrExist) {
			t.Errorf("got %v", err)
		}
		if err := f.Discard(); err != nil {
			t.Error(err)
		}
		if n := names(t, filepath.Dir(path)); len(n) != 1 || content(t, path) != "first" {
			t.Errorf("left: %v", n)
		}
	})
	t.Run("replaced", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "out")
		write(t, path, "old and longer")
		f, err := outfile.Create(path, 0o600, true)
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte("new"))
		if got := content(t, path); got != "old and longer" {
			t.Errorf("touched before Commit: %q", got)
		}
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
		if _, err := outfile.Create(filepath.Join(t.TempDir(), "no", "out"), 0o600, false); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a file for a directory", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		write(t, path, "")
		for _, err := range []error{outfile.Check(filepath.Join(path, "out"), true), outfile.CheckDirectory(path)} {
			if !errors.Is(err, unix.ENOTDIR) {
				t.Errorf("got %v", err)
			}
		}
		if err := outfile.CheckDirectory(filepath.Dir(path)); err != nil {
			t.Error(err)
		}
	})
}

// TestNotRegular: what is no regular file stays, whatever the user asks for.
func TestNotRegular(t *testing.T) { both(t, testNotRegular) }

func testNotRegular(t *testing.T) {
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
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			before := names(t, dir)
			for _, replace := range []bool{false, true} {
				if _, err := outfile.Create(path, 0o600, replace); !errors.Is(err, outfile.ErrNotRegular) {
					t.Errorf("replace %v: got %v", replace, err)
				}
			}
			if after := names(t, dir); !slices.Equal(after, before) {
				t.Errorf("left: %v, before: %v", after, before)
			}
		})
		t.Run(name+" that appears meanwhile", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out")
			f, err := outfile.Create(path, 0o600, true)
			if err != nil {
				t.Fatal(err)
			}
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			if err := f.Commit(); !errors.Is(err, outfile.ErrNotRegular) {
				t.Errorf("got %v", err)
			}
			if err := f.Discard(); err != nil {
				t.Error(err)
			}
			if st, err := os.Lstat(path); err != nil || st.Mode().IsRegular() {
				t.Errorf("it was replaced: %v, %v", st, err)
			}
		})
	}
}
