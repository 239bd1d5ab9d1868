// Package cgrouptest has tests run programs in control groups of their own.
package cgrouptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// mounts are where version 2 is mounted, alone or beside version 1.
var mounts = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}

// Make makes a control group of version 2 for the length of a test, and the groups above it. It
// returns what has a command start in it. Without the right to make groups the test is skipped.
func Make(t testing.TB, path string) func(*exec.Cmd) {
	t.Helper()
	for _, mount := range mounts {
		if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err != nil {
			continue
		}
		folder := mount
		for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
			folder = filepath.Join(folder, part)
			err := os.Mkdir(folder, 0o755)
			if os.IsExist(err) {
				continue
			}
			if err != nil {
				t.Skipf("no control group can be made: %v", err)
			}
			made := folder
			t.Cleanup(func() { remove(t, made) })
		}
		group := must.Get(os.Open(folder))(t)
		t.Cleanup(func() { _ = group.Close() })
		return func(c *exec.Cmd) {
			if c.SysProcAttr == nil {
				c.SysProcAttr = &syscall.SysProcAttr{}
			}
			c.SysProcAttr.UseCgroupFD, c.SysProcAttr.CgroupFD = true, int(group.Fd())
		}
	}
	t.Skip("control groups of version 2 are not mounted")
	return nil
}

// remove removes a group once its last process is gone.
func remove(t testing.TB, folder string) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := os.Remove(folder)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Errorf("a control group stays: %v", err)
			return
		}
	}
}
