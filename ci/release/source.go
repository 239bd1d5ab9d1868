package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// release is one build of one commit.
type release struct {
	source string // a clone at the commit
	build  string // what is compiled and generated: ARCH/PROGRAM, man, completion
	output string // the artefacts

	commit string    // its full hash
	date   time.Time // when it was committed, which all files and packages have
	// version is that of the packages: 0.1.0, or 0.0.0~DATE.HASH of a commit without a tag.
	version string
}

// crossCompilers are Debian's C compilers for each architecture.
var crossCompilers = map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}

// command runs a program in folder and returns its stdout; an error has its stderr.
func command(ctx context.Context, folder string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// checkOut clones this repository at a commit. Files that are not committed do not come along. A commit
// without a tag of a version is refused, if it is not to be a snapshot.
func (r *release) checkOut(ctx context.Context, commit string, snapshot bool) error {
	for _, dir := range []string{r.build, r.output} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	git := func(args ...string) (string, error) {
		// The checkout may belong to another user.
		return command(ctx, ".", nil, "git", append([]string{"-c", "safe.directory=*"}, args...)...)
	}
	hash, err := git("rev-parse", "--verify", "--end-of-options", commit+"^{commit}")
	if err != nil {
		return err
	}
	if _, err := git("describe", "--exact-match", "--tags", "--match", "v[0-9]*", hash); err != nil && !snapshot {
		return fmt.Errorf("commit %s has no tag of a version: tag it (git tag v0.1.0 %[1]s), or say --snapshot", hash)
	}
	top, err := git("rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return err
	}
	if _, err := git("clone", "--quiet", "--shared", "--no-checkout", top, r.source); err != nil {
		return err
	}
	if _, err := git("-C", r.source, "checkout", "--quiet", "--detach", hash); err != nil {
		return err
	}
	seconds, err := git("-C", r.source, "show", "--no-patch", "--format=%ct", hash)
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.commit, r.date = hash, time.Unix(n, 0).UTC()
	return nil
}

// environment has what decides about the bytes that Go's compiler makes.
func (r *release) environment(arch string) []string {
	return []string{"GOFLAGS=-trimpath", "GOARCH=" + arch, "GOOS=linux", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOWORK=off", "CGO_CFLAGS=-O2", "CGO_LDFLAGS=-O2",
		"CC=" + compiler(arch), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.date.Unix(), 10)}
}

// compiler is the C compiler for an architecture.
func compiler(arch string) string {
	if arch == runtime.GOARCH {
		return "gcc"
	}
	return crossCompilers[arch]
}

// compile builds the programs and the libraries in C for an architecture.
func (r *release) compile(ctx context.Context, arch string) error {
	env := r.environment(arch)
	for _, name := range programs {
		// Go puts the commit, its date and the version by its tag into the program.
		if _, err := command(ctx, r.source, append(env, "CGO_ENABLED=0"), "go", "build", "-buildvcs=true", "-ldflags=-s -w",
			"-o", r.program(arch, name), "./cmd/"+name); err != nil {
			return err
		}
	}
	if err := r.setVersion(r.program(arch, programs[0])); err != nil {
		return err
	}
	// The headers of libfabric are the same for all, but a cross compiler does not look where they are.
	env = append(env, "CPPFLAGS=-idirafter /usr/include", "CFLAGS=-O2", "LDFLAGS=-s -Wl,--build-id")
	for format, libdir := range libraryFolders(arch) {
		for _, folder := range []string{"vipl", "fabric"} {
			if _, err := command(ctx, filepath.Join(r.source, folder), env, "make", "install", "PREFIX=/usr", "LIBDIR="+libdir,
				"BUILD="+filepath.Join(r.build, arch, folder), "DESTDIR="+r.library(arch, format)); err != nil {
				return err
			}
		}
	}
	return nil
}

// program is where a compiled program is.
func (r *release) program(arch, name string) string { return filepath.Join(r.build, arch, name) }

// library is where the C library is installed for a format of packages.
func (r *release) library(arch, format string) string {
	return filepath.Join(r.build, arch, "libvipl-"+format)
}

// libraryFolders says where each format of packages has libraries.
func libraryFolders(arch string) map[string]string {
	triplet := strings.TrimSuffix(crossCompilers[arch], "-gcc")
	return map[string]string{"deb": "/usr/lib/" + triplet, "rpm": "/usr/lib64"}
}

// setVersion takes the version that Go has put into a program.
func (r *release) setVersion(program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	version, err := packageVersion(info.Main.Version)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	r.version = version
	return nil
}

// packageVersion turns a version of Go into one of packages: what follows a hyphen is older than
// the version without it, for which Debian and RPM have a tilde.
func packageVersion(version string) (string, error) {
	number, ok := strings.CutPrefix(version, "v")
	if !ok || strings.Contains(number, "+") {
		return "", fmt.Errorf("its version is %q: the commit is changed, or git has not been asked", version)
	}
	number, pre, found := strings.Cut(number, "-")
	if found {
		number += "~" + strings.ReplaceAll(pre, "-", ".")
	}
	return number, nil
}
