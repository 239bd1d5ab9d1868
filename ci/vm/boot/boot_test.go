package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

func TestFollow(t *testing.T) {
	for _, tt := range []struct {
		name, console string
		code          int
		found, fails  bool
		out, orders   string
	}{
		{"passed", "hello\r\nTRAPEZE-GUEST-EXIT 0\r\n", 0, true, false, "[x] hello\n[x] TRAPEZE-GUEST-EXIT 0\n", ""},
		{"failed", "TRAPEZE-GUEST-EXIT 1\n", 1, true, false, "[x] TRAPEZE-GUEST-EXIT 1\n", ""},
		{"no line end", "TRAPEZE-GUEST-EXIT 3", 3, true, false, "[x] TRAPEZE-GUEST-EXIT 3\n", ""},
		{"died", "Kernel panic\n", 0, false, false, "[x] Kernel panic\n", ""},
		{"not at the start", "say TRAPEZE-GUEST-EXIT 0\n", 0, false, false, "[x] say TRAPEZE-GUEST-EXIT 0\n", ""},
		{"nonsense", "TRAPEZE-GUEST-EXIT yes\n", 0, false, true, "[x] TRAPEZE-GUEST-EXIT yes\n", ""},
		{"empty lines and control characters", "\x1bc\x1b[?7l\x1b[2J\x1b[0m\x07\ta\x1b(B [b]\n\n\n", 0, false, false, "[x] \ta [b]\n", ""},
		{"an order", "TRAPEZE-MONITOR device_del nic\n", 0, false, false, "[x] TRAPEZE-MONITOR device_del nic\n[x] QEMU: done\n", "device_del nic"},
		{"an order that fails", "TRAPEZE-MONITOR bad\n", 0, false, true, "[x] TRAPEZE-MONITOR bad\n", "bad"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			var orders []string
			code, found, err := follow(iotest.OneByteReader(strings.NewReader(tt.console)), "[x] ", &out, func(c string) (string, error) {
				orders = append(orders, c)
				if c == "bad" {
					return "", errors.New("unknown command")
				}
				return "done", nil
			})
			should.Hold(t, code == tt.code && found == tt.found && (err != nil) == tt.fails, "code %d, found %v, error %v", code, found, err)
			should.Hold(t, out.String() == tt.out && strings.Join(orders, ";") == tt.orders, "printed %q, ordered %q", out.String(), orders)
		})
	}
	broken := errors.New("broken")
	if _, _, err := follow(iotest.ErrReader(broken), "", io.Discard, nil); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// TestOrder talks to a monitor that greets, sends events in between, and
// answers.
func TestOrder(t *testing.T) {
	for _, tt := range []struct{ name, answers, want, err string }{
		{"answer", `{"return":{}} {"event":"STOP"} {"return":"OK\r\n"}`, `"OK\r\n"`, ""},
		{"refused", `{"return":{}} {"error":{"class":"GenericError","desc":"no such device"}}`, "", "no such device"},
		{"closes", `{"return":{}}`, "", "EOF"},
		{"nonsense", `hello`, "", "invalid character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "monitor")
			l := must.Get(net.Listen("unix", socket))(t)
			defer l.Close()
			received := make(chan []string, 1)
			go func() {
				var commands []string
				defer func() { received <- commands }()
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				fmt.Fprint(c, `{"QMP":{}}`, tt.answers)
				in := json.NewDecoder(c)
				for range 2 {
					var m struct {
						Execute   string
						Arguments map[string]string
					}
					if in.Decode(&m) != nil {
						return
					}
					commands = append(commands, m.Execute+" "+m.Arguments["command-line"])
				}
			}()
			got, err := order(context.Background(), socket, "info pci")
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("answer %q, error %v", got, err)
			}
			if c := <-received; tt.err == "" && !slices.Equal(c, []string{"qmp_capabilities ", "human-monitor-command info pci"}) {
				t.Errorf("the monitor received %q", c)
			}
		})
	}
	if _, err := order(context.Background(), filepath.Join(t.TempDir(), "nobody"), "x"); err == nil {
		t.Error("an order to nobody")
	}
}

// TestScenarios: what the table says must fit together.
func TestScenarios(t *testing.T) {
	names := map[string]bool{}
	for _, s := range scenarios {
		if names[s.name] || s.name == "" || len(s.tests) == 0 {
			t.Errorf("scenario %q", s.name)
		}
		names[s.name] = true
		args := s.command(places{root: "/r", stock: "/s", own: "/o", scratch: "/t"}, "/i", "/m")
		kernel := "/o/bzImage"
		if s.stock {
			kernel = "/s/bzImage"
		}
		for _, want := range []string{kernel, "/i", "tcg"} {
			should.Hold(t, slices.Contains(args, want), "%s: %q is not in %q", s.name, want, args)
		}
		should.Be(t, slices.Contains(args, "intel-iommu,intremap=on,caching-mode=on"), s.iommu, "%s: an IOMMU", s.name)
		for _, d := range s.devices {
			should.Hold(t, slices.Contains(args, d), "%s: no device %s", s.name, d)
		}
	}
	for _, s := range scenarios[0].only("MSI").tests {
		should.Hold(t, s.run == "MSI" && scenarios[0].tests[0].run == "", "pattern %q", s.run)
	}
}

// TestHelpOfRun: ci/vm/run -h names every scenario and prepares nothing.
func TestHelpOfRun(t *testing.T) {
	cache := t.TempDir()
	for _, args := range [][]string{{"-h"}, {"--help"}, {"-run", "MSI", "group", "-h"}} {
		c := exec.Command("../run", args...)
		c.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
		out, err := c.Output()
		must.OK(t, err, "%v", args)
		said := [][]byte{[]byte("Usage: ci/vm/run"), []byte(cache), []byte("\n  -parallel N "), []byte("\n  -timeout TIME "), []byte("\n  -run PATTERN "), []byte("\n  -prepare ")}
		for _, s := range scenarios {
			said = append(said, []byte("\n  "+s.name+" "))
		}
		for _, s := range said {
			should.Hold(t, bytes.Contains(out, s), "%v: %q is not in the text", args, s)
		}
	}
	if left, err := os.ReadDir(cache); err != nil || len(left) != 0 {
		t.Errorf("it makes %v, %v", left, err)
	}
}

func TestChoose(t *testing.T) {
	if all, err := choose(nil); err != nil || len(all) != len(scenarios) {
		t.Errorf("all: %d, %v", len(all), err)
	}
	if list, err := choose([]string{"noiommu", "group"}); err != nil || len(list) != 2 || list[0].name != "group" {
		t.Errorf("two: %v, %v", list, err)
	}
	should.Explain(choose([]string{"group", "xen"}))(t, `no scenario "xen": there are group`, "unknown")
}

func TestCommand(t *testing.T) {
	got := test{pkg: "ci/vm/guest", env: []string{"A=1", "B=2"}, run: "TestMSI$"}.command("/tests.d/x")
	should.Be(t, got, "A=1 B=2 /tests.d/x -test.v -test.timeout="+"0"+" -test.run='TestMSI$'")
}

// TestInitramfs packs a file system, with a program of this machine, and looks into it.
func TestInitramfs(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("there is no busybox here")
	}
	if _, err := os.Stat("/" + loader); err != nil {
		t.Skip("this machine keeps its libraries elsewhere than Debian on x86-64")
	}
	dir := t.TempDir()
	f := &tree{folder: filepath.Join(dir, "root")}
	f.program("init", []byte("first"))
	f.link("bin/sh", "busybox")
	must.OK(t, f.addProgram(t.Context(), "/", "usr/bin/env"))
	image := filepath.Join(dir, "image")
	must.OK(t, f.pack(t.Context(), image, busybox))
	cmd := exec.CommandContext(t.Context(), busybox, "cpio", "-t", "-F", image)
	out, err := cmd.Output()
	for _, want := range []string{"init", "bin", "bin/sh", "usr/bin/env", "lib/libc.so.6", "lib/" + filepath.Base(loader), loader} {
		should.Contain(t, "\n"+string(out), "\n"+want+"\n", "no %s in %s, %v", want, out, err)
	}
	f.copy("a", filepath.Join(dir, "not-there"))
	should.Fail(t, f.pack(t.Context(), image, busybox), os.ErrNotExist, "a file that is not there")
	if err := f.addProgram(t.Context(), "/", "usr/bin/this-is-no-program"); err == nil {
		t.Error("a program that is not there")
	}
}

// TestRunAll: so many at a time, results in order, and an end to it.
func TestRunAll(t *testing.T) {
	list := []scenario{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}, {name: "e"}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running, most atomic.Int32
	both := make(chan struct{}) // closed when two run at a time
	bad := errors.New("bad")
	results := runAll(ctx, list, 2, func(s scenario) error {
		n := running.Add(1)
		defer running.Add(-1)
		if n > most.Load() {
			most.Store(n)
		}
		switch {
		case n == 2 && (s.name == "a" || s.name == "b"):
			close(both)
		case s.name == "a" || s.name == "b":
			<-both
		case s.name == "c":
			cancel()
			return bad
		case s.name == "d":
			<-ctx.Done() // so that nothing else begins before
		}
		return nil
	})
	var names string
	for _, r := range results {
		names += r.name
	}
	should.Hold(t, names == "abcde" && most.Load() == 2, "results of %s, %d at a time", names, most.Load())
	should.Hold(t, results[0].err == nil && errors.Is(results[2].err, bad) && errors.Is(results[4].err, context.Canceled), "results %+v", results)
}
