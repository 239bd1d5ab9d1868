package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
)

// buildTests links the test programs of the scenarios, each once, and returns
// where they are by package.
func buildTests(ctx context.Context, folder string, list []scenario) (map[string]string, error) {
	programs := map[string]string{}
	for _, s := range list {
		for _, t := range s.tests {
			if programs[t.pkg] != "" {
				continue
			}
			program := filepath.Join(folder, strings.ReplaceAll(t.pkg, "/", "-"))
			if err := build(ctx, ".", "test", program, t.pkg); err != nil {
				return nil, err
			}
			programs[t.pkg] = program
		}
	}
	return programs, nil
}

// build links a package of a module, or with verb test its tests, statically. Other steps of .ci/run have compiled both so.
func build(ctx context.Context, module, verb, program, pkg string) error {
	args := []string{verb, "-C", module, "-trimpath", "-ldflags=-s -w", "-o", program}
	if verb == "test" {
		args = append(args, "-c", "-pgo=off")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=-buildvcs=false")
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, b)
	}
	return nil
}

// tree is a guest's file system while it is a folder of this machine. It remembers the first error.
type tree struct {
	folder string
	err    error
}

// put makes a file with the folders that it is in.
func (f *tree) put(name string, make func(path string) error) {
	path := filepath.Join(f.folder, name)
	if f.err == nil {
		f.err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if f.err == nil {
		f.err = make(path)
	}
}

func (f *tree) link(name, target string) {
	f.put(name, func(path string) error { return os.Symlink(target, path) })
}

func (f *tree) program(name string, content []byte) {
	f.put(name, func(path string) error { return os.WriteFile(path, content, 0o755) })
}

// copy adds a program or library from this machine.
func (f *tree) copy(name, from string) {
	b, err := os.ReadFile(from)
	f.err = cmp.Or(f.err, err)
	f.program(name, b)
}

// copyAll adds the files of a folder, of which there must be some.
func (f *tree) copyAll(name, pattern string) {
	list, err := filepath.Glob(pattern)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("there is no %s", pattern)
	}
	f.err = cmp.Or(f.err, err)
	for _, from := range list {
		f.copy(filepath.Join(name, filepath.Base(from)), from)
	}
}

// pack writes the folder as the archive that the kernel unpacks (Documentation/driver-api/early-userspace/buffer-format.rst).
func (f *tree) pack(ctx context.Context, image, busybox string) error {
	var names strings.Builder
	walk := filepath.WalkDir(f.folder, func(path string, _ fs.DirEntry, err error) error {
		if path != f.folder {
			fmt.Fprintln(&names, strings.TrimPrefix(path, f.folder+"/"))
		}
		return err
	})
	out, err := os.Create(image)
	if err = cmp.Or(f.err, walk, err); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, busybox, "cpio", "-o", "-H", "newc", "-R", "0:0")
	cmd.Dir, cmd.Stdin, cmd.Stdout = f.folder, strings.NewReader(names.String()), out
	return errors.Join(cmd.Run(), out.Close())
}

// writeInitramfs writes a guest's file system.
func writeInitramfs(ctx context.Context, image string, p places, s scenario, programs map[string]string) error {
	busybox := filepath.Join(p.root, "usr/bin/busybox")
	f := &tree{folder: image + ".root"}
	f.copy("bin/busybox", busybox)
	f.link("bin/sh", "busybox")
	f.copy("init", "ci/vm/init")
	f.copy("bin/trapeze", p.trapeze)
	f.copy("bin/trapeze-ip", p.ip)
	f.copy("usr/share/misc/pci.ids", filepath.Join(p.root, "usr/share/misc/pci.ids"))
	if err := f.addProgram(ctx, p.root, "usr/bin/lspci"); err != nil {
		return err
	}
	if s.stock {
		f.copyAll("modules", filepath.Join(p.stock, "modules/*.ko"))
		f.copyAll("modules/late", filepath.Join(p.stock, "modules/late/*.ko"))
	}
	for i := range s.cables {
		f.copy(cableFile(i), filepath.Join(p.scratch, s.name+cableFile(i)))
	}
	var script strings.Builder
	for _, t := range s.tests {
		inside := "tests.d/" + path.Base(programs[t.pkg])
		f.copy(inside, programs[t.pkg])
		fmt.Fprintln(&script, t.command("/"+inside))
	}
	f.program("tests", []byte(script.String()))
	return errors.Join(f.pack(ctx, image, busybox), os.RemoveAll(f.folder))
}

// command is the line by which a guest runs a test program.
func (t test) command(program string) string {
	env := slices.Clone(t.env)
	if soak.Wanted() {
		env = append(env, soak.Variable+"=1")
	}
	words := append(env, program, "-test.v", "-test.timeout=0") // the host counts the time
	if t.run != "" {
		words = append(words, "-test.run='"+t.run+"'")
	}
	return strings.Join(words, " ")
}

// addProgram adds a program of the root with its libraries, where the loader looks for them.
func (f *tree) addProgram(ctx context.Context, root, program string) error {
	f.copy(program, filepath.Join(root, program))
	list, err := exec.CommandContext(ctx, filepath.Join(root, loader), "--library-path", filepath.Join(root, libraries), "--list", filepath.Join(root, program)).Output()
	if err != nil {
		return fmt.Errorf("libraries of %s: %w", program, err)
	}
	for line := range strings.Lines(string(list)) {
		if _, found, ok := strings.Cut(line, " => "); ok { // the kernel's own has no file
			path, _, _ := strings.Cut(found, " ")
			f.copy("lib/"+filepath.Base(path), path)
		}
	}
	f.copy("lib/"+filepath.Base(loader), filepath.Join(root, loader))
	f.link(loader, "../lib/"+filepath.Base(loader))
	return nil
}
