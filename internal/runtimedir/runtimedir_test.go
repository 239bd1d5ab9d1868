package runtimedir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/runtimedir"
)

// as has f run as another user who has not logged in.
func as(t *testing.T, uid int, f func()) {
	t.Helper()
	t.Setenv("RUNTIME_DIRECTORY", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	must.OK(t, syscall.Setreuid(-1, uid))
	defer func() { must.OK(t, syscall.Setreuid(-1, 0)) }()
	f()
}

// touch makes a file in a folder.
func touch(folder string) error { return os.WriteFile(filepath.Join(folder, "x"), nil, 0o600) }

// TestUsers: each user without a login has a folder of its own, which is gone when it is empty. One that
// another user has made in its place is refused.
func TestUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be two users")
	}
	const first, second = 4_000_000_011, 4_000_000_012
	folders := map[string]bool{}
	for _, uid := range []int{first, second} {
		as(t, uid, func() {
			err := runtimedir.Use(func(folder string) error {
				folders[folder] = true
				return touch(folder)
			}, "a", "b")
			if info, serr := os.Stat(runtimedir.Root()); err != nil || serr != nil || info.Mode().Perm() != 0o700 || !strings.HasPrefix(runtimedir.Root(), "/tmp/") {
				t.Errorf("%v, %v, %v", err, serr, info)
			}
		})
	}
	should.Be(t, len(folders), 2, "%v", folders)
	for folder := range folders {
		should.OK(t, os.Remove(filepath.Join(folder, "x")))
	}
	for _, uid := range []int{first, second} {
		as(t, uid, func() {
			runtimedir.Remove("a", "b")
			if _, err := os.Lstat(runtimedir.Root()); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is still there: %v", runtimedir.Root(), err)
			}
		})
	}
	var taken string
	as(t, first, func() { taken = runtimedir.Root() })
	as(t, second, func() {
		must.OK(t, os.Mkdir(taken, 0o700))
	})
	defer os.Remove(taken)
	as(t, first, func() {
		if err := runtimedir.Use(touch, "a"); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
			t.Errorf("got %v", err)
		}
	})
}

// TestUse: of those that make a folder while others remove it, each has it; what is not empty stays,
// and so does the first folder.
func TestUse(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir()+":/of/another")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 200 {
				var path string
				should.OK(t, runtimedir.Use(func(folder string) (err error) {
					path = filepath.Join(folder, string(rune('a'+i)))
					return os.WriteFile(path, nil, 0o600)
				}, "a", "b", "c"))
				runtimedir.Remove("a", "b", "c")
				should.OK(t, os.Remove(path))
				runtimedir.Remove("a", "b", "c")
			}
		})
	}
	all.Wait()
	left, err := os.ReadDir(filepath.Join(runtimedir.Root(), "a"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
