// Package qemutest gives tests machines of package ci/kit/qtest, where there is a QEMU.
package qemutest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/qtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// Environment variables: where QEMU is, a program, the folder of a Debian root as ci/vm/root makes it,
// or newest; and that tests fail without one.
const (
	variable = "TRAPEZE_QEMU"
	required = "TRAPEZE_REQUIRE_QEMU"
)

// Start starts a machine with a device of each model, see qtest.Options.Devices, and
// ends it with the test, which fails if a device did DMA where nothing was mapped.
// Without a QEMU, or with one that has no such model, it skips the test and says why, or
// fails it if TRAPEZE_REQUIRE_QEMU is set, as in CI.
func Start(t testing.TB, devices ...string) *qtest.Machine {
	t.Helper()
	m, err := qtest.Start(t.Context(), qtest.Options{Devices: devices, QEMU: Command(t)})
	if exit, ok := errors.AsType[*qtest.ExitError](err); ok && strings.Contains(exit.Stderr, "not a valid device model name") && os.Getenv(variable) == newest {
		missing(t, fmt.Sprintf("this QEMU is too old or has been built without a model: %v", err))
	}
	must.OK(t, err)
	t.Cleanup(func() {
		err := m.Fault()
		should.Hold(t, !errors.As(err, new(*qtest.FaultError)), "%v", err)
		should.OK(t, m.Close())
	})
	return m
}

// newest asks for the newest root that ci/vm/run has made, or else for qemu-system-x86_64 of the machine.
const newest = "newest"

// Command returns how QEMU's command line begins: of what TRAPEZE_QEMU names. It skips or fails as Start
// does. Without the variable it skips: the step qtest of .ci/run has these tests.
func Command(t testing.TB) []string {
	t.Helper()
	switch named := os.Getenv(variable); named {
	case "":
		missing(t, "runs on QEMU's models: set "+variable+"=newest, or run .ci/run qtest")
	case newest:
		return find(t)
	default:
		if command := inRoot(named); command != nil {
			return command
		}
		return []string{named}
	}
	return nil
}

func find(t testing.TB) []string {
	t.Helper()
	// The name of a root holds a digest: the newest is the one in use.
	var latest os.FileInfo
	var command []string
	roots, _ := filepath.Glob(filepath.Join(cache(), "trapeze/vm/root-*/complete"))
	for _, complete := range roots {
		info, err := os.Stat(complete)
		if err != nil || latest != nil && info.ModTime().Before(latest.ModTime()) {
			continue
		}
		if c := inRoot(filepath.Dir(complete)); c != nil {
			latest, command = info, c
		}
	}
	if command != nil {
		return command
	}
	if path, err := exec.LookPath("qemu-system-x86_64"); err == nil {
		return []string{path}
	}
	missing(t, "there is no QEMU: run ci/vm/run once, or install qemu-system-x86 of version 8 or later")
	return nil
}

func missing(t testing.TB, why string) {
	t.Helper()
	must.Be(t, os.Getenv(required), "", "%v", why)
	t.Skip(why)
}

// cache is the folder that ci/vm/run caches in.
func cache() string {
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return dir
	}
	return filepath.Join(os.Getenv("HOME"), ".cache")
}

// inRoot returns how to run the QEMU of a Debian root without chroot: that root's
// loader starts it, and finds that root's libraries.
func inRoot(root string) []string {
	in := func(path string) string { return filepath.Join(root, path) }
	if _, err := os.Stat(in("usr/bin/qemu-system-x86_64")); err != nil {
		return nil
	}
	return []string{
		in("lib64/ld-linux-x86-64.so.2"), "--library-path", in("usr/lib/x86_64-linux-gnu"), in("usr/bin/qemu-system-x86_64"),
		"-L", in("usr/share/qemu"), "-L", in("usr/share/seabios"),
	}
}
