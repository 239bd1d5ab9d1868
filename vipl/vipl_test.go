package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// timeout ends programs that do not end by themselves.
const timeout = 3 * time.Minute

// installed is where the library, its header and its file for pkg-config are.
var installed string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "trapeze-vipl-")
	if err == nil {
		defer os.RemoveAll(dir)
		installed = filepath.Join(dir, "prefix")
		var out []byte
		out, err = exec.Command("make", "install", "BUILD="+filepath.Join(dir, "build"), "PREFIX="+installed).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("make install: %w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// compile makes a program of C files, with the flags that pkg-config has for it.
func compile(t testing.TB, files ...string) string {
	t.Helper()
	ask := exec.Command("pkg-config", "--cflags", "--libs", "trapeze-vipl")
	ask.Env = append(os.Environ(), "PKG_CONFIG_PATH="+filepath.Join(installed, "lib", "pkgconfig"))
	flags, err := ask.Output()
	if err != nil {
		t.Fatal("pkg-config: ", err)
	}
	program := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program}, files...)
	args = append(args, strings.Fields(string(flags))...)
	if out, err := exec.Command("gcc", append(args, "-Wl,-rpath,"+filepath.Join(installed, "lib"))...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return program
}

// command is a program that is killed when the test ends, or after timeout.
func command(t testing.TB, program string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, program, args...)
}

// pair returns the addresses of two NICs on one wire in one process.
func pair(name string) []string {
	return []string{"emu:?engine=inline&wire=mem:" + name, "emu:?wire=mem:" + name + "&engine=inline"}
}

// kinds are pairs whose engines run when they are called, and on threads of their own.
func kinds(name string) map[string][]string {
	return map[string][]string{
		"inline": pair(name), "thread": {"emu:?wire=mem:" + name, "emu:?engine=thread&wire=mem:" + name},
	}
}

// TestPrograms runs what C says of each function: each program checks what it is told,
// and says on stderr what is wrong.
func TestPrograms(t *testing.T) {
	names := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(names, []byte("02:00:00:00:00:01 first\n02:00:00:00:00:02/echo second\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"objects", "queues", "peers", "names", "threads", "rdma", "forked", "signals"} {
		t.Run(name, func(t *testing.T) {
			program := compile(t, filepath.Join("testdata", name+".c"))
			for kind, devices := range kinds(name) {
				t.Run(kind, func(t *testing.T) {
					if name == "names" {
						devices = append(devices, names)
					}
					if out, err := command(t, program, devices...).CombinedOutput(); err != nil {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		})
	}
}

// TestFreed: a program unmaps memory that the library still has, and is not ended.
func TestFreed(t *testing.T) {
	program := compile(t, filepath.Join("testdata", "freed.c"))
	for _, c := range []string{"disconnected", "connected", "calls", "notice", "message", "buffer"} {
		for kind, devices := range kinds(c) {
			t.Run(c+"/"+kind, func(t *testing.T) {
				if out, err := command(t, program, append([]string{c}, devices...)...).CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// TestPolled: programs write to each other's memory and look there for what comes, without
// a call, on NICs of which nothing is said but the wire.
func TestPolled(t *testing.T) {
	program := compile(t, filepath.Join("testdata", "polled.c"))
	for _, bytes := range []string{"64", "16384", "1000000"} {
		t.Run(bytes+" bytes", func(t *testing.T) {
			wire := "emu:?wire=shm:" + filepath.Join(t.TempDir(), "w")
			s := serve(t, program, "20", bytes, wire)
			if out, err := command(t, program, "20", bytes, wire, s.address).CombinedOutput(); err != nil {
				t.Errorf("client: %v\n%s", err, out)
			}
			s.succeed(t)
		})
	}
}

// TestHeader: a program of one line builds with the standards of then and now, and as C++,
// with the names of all vendors.
func TestHeader(t *testing.T) {
	for _, use := range []struct {
		names, define string
		builds        bool
	}{
		{"d.CS.SegCount + d.DS[1].Local.Length", "", true},
		{"d.Control.SegCount + d.Data[0].Length", "", true},
		{"d.CS.SegCount + d.DS[1].Local.Length", "-DVIPL095", true},
		{"d.Control.SegCount + d.Data[0].Length", "-DVIPL095", false},
	} {
		source := filepath.Join(t.TempDir(), "source.c")
		program := "#include <vipl.h>\nunsigned f(VIP_DESCRIPTOR d) { return sizeof(d) != 64 || VIP_ERROR != 17 ? 0 : " + use.names + "; }\n"
		if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"-std=gnu89"}, {"-std=c89", "-pedantic"}, {"-std=c11", "-pedantic"},
			{"-std=c++98", "-pedantic", "-x", "c++"}, {"-std=c++11", "-pedantic", "-x", "c++"},
		} {
			args = append(args, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"+filepath.Join(installed, "include"))
			if use.define != "" {
				args = append(args, use.define)
			}
			out, err := exec.Command("gcc", append(args, source)...).CombinedOutput()
			var exit *exec.ExitError
			if strings.HasPrefix(args[0], "-std=c++") && errors.As(err, &exit) && strings.Contains(string(out), "cc1plus") {
				t.Log("gcc has no C++ here")
				continue
			}
			if (err == nil) != use.builds {
				t.Errorf("gcc %s of %s: %v\n%s", strings.Join(args, " "), use.names, err, out)
			}
		}
	}
}

// TestInstall: what is installed has its version and no path of the build; uninstall takes
// all of it away.
func TestInstall(t *testing.T) {
	build, root := t.TempDir(), t.TempDir()
	run := func(target string) {
		t.Helper()
		if out, err := exec.Command("make", target, "BUILD="+build, "PREFIX=/usr", "DESTDIR="+root).CombinedOutput(); err != nil {
			t.Fatalf("make %s: %v\n%s", target, err, out)
		}
	}
	files := func() (names []string) {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				names = append(names, strings.TrimPrefix(path, root))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	run("install")
	_, version, found := strings.Cut(read("usr/lib/pkgconfig/trapeze-vipl.pc"), "\nVersion: ")
	version, _, _ = strings.Cut(version, "\n")
	if !found || !strings.HasPrefix(version, "1.") {
		t.Errorf("pkg-config is told of version %q", version)
	}
	want := []string{"/usr/include/vipl.h", "/usr/lib/libvipl.so", "/usr/lib/libvipl.so.1", "/usr/lib/libvipl.so." + version,
		"/usr/lib/pkgconfig/trapeze-vipl.pc"}
	if got := files(); !slices.Equal(got, want) {
		t.Errorf("installed are %v, want %v", got, want)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if library := read("usr/lib/libvipl.so"); strings.Contains(library, here) || strings.Contains(library, build) {
		t.Error("the library names a folder of the build")
	}
	if got, err := os.ReadDir(build); err != nil || len(got) != 2 {
		t.Errorf("built are %v, %v: want the library and a file for pkg-config", got, err)
	}
	run("uninstall")
	if left := files(); left != nil {
		t.Errorf("after uninstall there are %v", left)
	}
}

// TestSymbols: the library shows the functions of vipl.h and nothing else.
func TestSymbols(t *testing.T) {
	header, err := os.ReadFile("vipl.h")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nm", "-D", "--defined-only", filepath.Join(installed, "lib", "libvipl.so")).Output()
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for line := range strings.Lines(string(out)) {
		name := strings.Fields(line)
		symbol, _, _ := strings.Cut(name[len(name)-1], "@")
		if symbol == "VIPL_1.0" {
			continue
		}
		shown++
		if !strings.Contains(string(header), "VIP_RETURN "+symbol+"(") {
			t.Errorf("%s is shown, and not in vipl.h", symbol)
		}
	}
	if want := strings.Count(string(header), "\nVIP_RETURN Vip"); shown != want {
		t.Errorf("%d functions are shown, vipl.h has %d", shown, want)
	}
}
