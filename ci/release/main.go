// Command release builds what a release has, from one commit alone: static programs, packages for
// Debian and for RPM, an image of OCI, a bill of materials and checksums. The same commit gives
// the same bytes with the same Go, C compiler and machine architecture.
//
// .ci/release looks for what it needs, and runs it. It writes nothing but DIR, which must not exist, and publishes nothing. A commit without a tag of
// a version is refused, unless --snapshot says that it is to have a version of its date.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// programs are the commands, each in the folder tools and in a package of its name.
var programs = []string{"trapeze", "trapeze-lab"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	output := flag.String("output", "", "`folder` to make and fill")
	commit := flag.String("commit", "HEAD", "`commit` or tag to build, of this repository")
	snapshot := flag.Bool("snapshot", false, "build a commit that has no tag of a version")
	archs := flag.String("arch", "amd64,arm64", "`architectures` to build for, this machine's among them: its programs write the manual pages")
	flag.Parse()
	if err := run(ctx, *output, *commit, *snapshot, strings.Split(*archs, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

// run builds everything in a scratch folder, and moves it to output if all went well.
func run(ctx context.Context, output, commit string, snapshot bool, archs []string) (err error) {
	if output == "" || flag.NArg() > 0 {
		return errors.New("call it with --output DIR and no arguments")
	}
	if _, err := os.Stat(output); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--output %s is there already", output)
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(output), ".release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	r := &release{source: filepath.Join(scratch, "source"), build: filepath.Join(scratch, "build"), output: filepath.Join(scratch, "output")}
	if err := r.checkOut(ctx, commit, snapshot); err != nil {
		return err
	}
	if err := r.make(ctx, archs); err != nil {
		return err
	}
	if err := os.Chmod(r.output, 0o755); err != nil {
		return err
	}
	return os.Rename(r.output, output)
}

// make builds all artefacts for the architectures.
func (r *release) make(ctx context.Context, archs []string) error {
	for _, arch := range archs {
		if err := r.compile(ctx, arch); err != nil {
			return err
		}
	}
	if err := r.document(ctx); err != nil {
		return err
	}
	for _, arch := range archs {
		for _, step := range []func(string) error{r.publishPrograms, r.packages, r.bills, r.image} {
			if err := step(arch); err != nil {
				return err
			}
		}
	}
	return r.sums()
}
