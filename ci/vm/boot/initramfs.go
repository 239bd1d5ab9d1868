package main

import (
	"bufio"
	"context"
	"fmt"
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
			if err := build(ctx, "test", program, t.pkg); err != nil {
				return nil, err
			}
			programs[t.pkg] = program
		}
	}
	return programs, nil
}

// build links a package, or with verb test its tests, statically. Other steps of .ci/run have compiled both so.
func build(ctx context.Context, verb, program, pkg string) error {
	args := []string{verb, "-trimpath", "-ldflags=-s -w", "-o", program}
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

// writeInitramfs writes a guest's file system.
func writeInitramfs(name string, p places, s scenario, programs map[string]string) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := file.Close(); err == nil {
			err = cerr
		}
	}()
	buffered := bufio.NewWriter(file)
	c := &cpioWriter{w: buffered}
	for _, folder := range []string{"bin", "modules", "tests.d", "usr", "usr/bin", "usr/lib", "usr/share", "usr/share/misc"} {
		c.folder(folder)
	}
	c.copy("bin/busybox", filepath.Join(p.root, "usr/bin/busybox"))
	c.link("bin/sh", "busybox")
	c.copy("init", "ci/vm/init")
	c.copy("bin/trapeze", p.trapeze)
	if err := addProgram(c, p.root, "usr/bin/lspci"); err != nil {
		return err
	}
	c.copy("usr/share/misc/pci.ids", filepath.Join(p.root, "usr/share/misc/pci.ids"))
	if s.stock {
		if err := addModules(c, p.stock); err != nil {
			return err
		}
	}
	if s.cables > 0 {
		c.folder("cables")
	}
	for i := range s.cables {
		c.copy(cableFile(i), filepath.Join(p.scratch, s.name+cableFile(i)))
	}
	var script strings.Builder
	added := map[string]bool{}
	for _, t := range s.tests {
		inside := "tests.d/" + path.Base(programs[t.pkg])
		if !added[inside] {
			added[inside] = true
			c.copy(inside, programs[t.pkg])
		}
		fmt.Fprintln(&script, t.command("/"+inside))
	}
	c.program("tests", []byte(script.String()))
	if err := c.close(); err != nil {
		return err
	}
	return buffered.Flush()
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

func addModules(c *cpioWriter, kernel string) error {
	modules, err := filepath.Glob(filepath.Join(kernel, "modules/*.ko"))
	if err != nil {
		return err
	}
	if len(modules) == 0 {
		return fmt.Errorf("no modules in %s", kernel)
	}
	for _, m := range modules {
		c.copy("modules/"+filepath.Base(m), m)
	}
	late, err := filepath.Glob(filepath.Join(kernel, "modules/late/*.ko"))
	if err != nil {
		return err
	}
	c.folder("modules/late")
	for _, m := range late {
		c.copy("modules/late/"+filepath.Base(m), m)
	}
	return nil
}

// addProgram adds a program of the root with its libraries, where the loader
// looks for them.
func addProgram(c *cpioWriter, root, program string) error {
	list, err := libraries(root, program)
	if err != nil {
		return err
	}
	c.copy(program, filepath.Join(root, program))
	c.folder("lib")
	c.folder("lib64")
	for _, l := range list {
		c.copy("lib/"+filepath.Base(l), filepath.Join(root, l))
		if strings.HasPrefix(filepath.Base(l), "ld-linux") {
			c.link("lib64/"+filepath.Base(l), "../lib/"+filepath.Base(l))
		}
	}
	return nil
}
