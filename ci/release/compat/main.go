// Command compat compares this repository with its last tag: the Go packages that programs of
// others can import, and the constants of the data sheet and of the wire protocols.
//
//	cd ci/release && go run ./compat
//
// It lists what is incompatible. It fails if a patch version would bring changes of the packages,
// or if a protocol changed and its version did not. Without a tag it says so, and succeeds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/mod/semver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	folder := flag.String("repository", "../..", "`folder` of the repository")
	flag.Parse()
	if err := run(ctx, *folder, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		stop()
		os.Exit(1)
	}
}

func git(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*", "-C", folder}, args...)...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// lastTag is the newest version that is tagged below the commit, empty if there is none. A tag of
// the commit itself is not below it.
func lastTag(ctx context.Context, folder string) (string, error) {
	tags, err := git(ctx, folder, "tag", "--list", "v[0-9]*", "--merged", "HEAD", "--no-contains", "HEAD", "--sort=-version:refname")
	first, _, _ := strings.Cut(tags, "\n")
	return first, err
}

// run compares the work tree in a folder with its last tag, and prints what differs.
func run(ctx context.Context, folder string, out io.Writer) (err error) {
	tag, err := lastTag(ctx, folder)
	if err != nil {
		return err
	}
	if tag == "" {
		fmt.Fprintln(out, "there is no earlier tag to compare with")
		return nil
	}
	changelog, err := os.ReadFile(filepath.Join(folder, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "compat-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	common, err := git(ctx, folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return err
	}
	before := filepath.Join(scratch, "before")
	if _, err := git(ctx, folder, "clone", "--quiet", "--shared", "--branch", tag, "-c", "advice.detachedHead=false", common, before); err != nil {
		return err
	}
	changes, err := compare(ctx, before, folder)
	if err != nil {
		return err
	}
	for _, c := range changes {
		fmt.Fprintln(out, c)
	}
	fmt.Fprintf(out, "%d incompatible changes since %s\n", len(changes), tag)
	return judge(changes, tag, nextVersion(string(changelog)))
}

// nextVersion is the version of the changelog's first heading, empty for "Unreleased".
func nextVersion(changelog string) string {
	_, heading, _ := strings.Cut(changelog, "\n## ")
	fields := strings.Fields(heading)
	if len(fields) == 0 || fields[0] == "Unreleased" {
		return ""
	}
	return "v" + fields[0]
}

// judge says which changes the next version must not bring.
func judge(changes []change, tag, next string) error {
	var errs []error
	for _, c := range changes {
		switch {
		case c.protocol != "" && !c.renumbered:
			errs = append(errs, fmt.Errorf("%s changed, and its version did not: %s", c.protocol, c))
		case c.protocol == "" && next != "" && semver.MajorMinor(next) == semver.MajorMinor(tag):
			errs = append(errs, fmt.Errorf("%s after %s is a patch version, which changes no package: %s", next, tag, c))
		}
	}
	return errors.Join(errs...)
}
