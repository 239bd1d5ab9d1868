package docs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

const kmodNotes = "../../kmod-notes"

// example reads one of the files that kmod-notes offers.
func example(t *testing.T, name string) string {
	t.Helper()
	b := must.Get(os.ReadFile(filepath.Join(kmodNotes, "examples", name)))(t)
	return string(b)
}

// examples lists the names of those that match a pattern, at least one.
func examples(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(kmodNotes, "examples", pattern))
	must.Hold(t, err == nil && len(files) != 0, "%s: %v, %v", pattern, files, err)
	for i, f := range files {
		files[i] = filepath.Base(f)
	}
	return files
}

// needs skips a test whose program is not on this machine.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("not checked: %v", err)
	}
}

// TestExamplesAreNamed: each example is on some page, and says where it belongs.
func TestExamplesAreNamed(t *testing.T) {
	pages := must.Get(filepath.Glob(filepath.Join(kmodNotes, "*.md")))(t)
	var all strings.Builder
	for _, p := range pages {
		b := must.Get(os.ReadFile(p))(t)
		all.Write(b)
	}
	for _, name := range examples(t, "*") {
		should.Contain(t, all.String(), "(examples/"+name+")", "no page links to %s", name)
		if text := example(t, name); !strings.HasPrefix(text, "# /etc/") && !strings.HasPrefix(text, "#!/bin/sh\n# /etc/") && !strings.HasSuffix(name, ".yaml") {
			t.Errorf("%s does not begin with the place where it belongs", name)
		}
	}
}

// TestUnits has systemd read the units.
func TestUnits(t *testing.T) {
	needs(t, "systemd-analyze")
	dir := t.TempDir()
	var units []string
	for _, pattern := range []string{"*.service", "*.socket"} {
		for _, name := range examples(t, pattern) {
			// Programs that this machine need not have.
			text := regexp.MustCompile(`=(/usr/local/bin/trapeze|/sbin/modprobe)\b`).ReplaceAllString(example(t, name), "=/bin/true")
			must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			units = append(units, name)
		}
	}
	for _, name := range units {
		c := exec.Command("systemd-analyze", "verify", "./"+name)
		c.Dir = dir
		c.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		// Keys that it does not know are no failure, but it says so.
		out, err := c.CombinedOutput()
		should.Hold(t, err == nil && len(out) == 0, "%s: %v\n%s", name, err, out)
	}
}

// assignment is a part of a udev rule (udev(7)).
var assignment = regexp.MustCompile(`^[A-Z]+(\{[A-Za-z0-9_/]+\})?(==|!=|=|\+=|-=|:=)"[^"]*"$`)

// address is that of a PCI function.
var address = regexp.MustCompile(`"([^"]*/)?0000:03:00\.0"`)

// TestUdevRules: udev can read each line, and whatever VFIO hands out goes to nobody but
// for one function.
func TestUdevRules(t *testing.T) {
	for _, name := range examples(t, "*.rules") {
		n := 0
		for line := range strings.Lines(example(t, name)) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			n++
			for _, part := range strings.Split(line, ", ") {
				should.Hold(t, assignment.MatchString(part), "%s: %s in %s", name, part, line)
			}
			if !strings.Contains(line, `SUBSYSTEM=="misc", KERNEL=="iommu"`) && !address.MatchString(line) {
				t.Errorf("%s: %s is not for one function", name, line)
			}
		}
		should.Hold(t, n != 0, "%s has no rules", name)
		t.Run(name+" by udev", func(t *testing.T) {
			needs(t, "udevadm")
			if exec.Command("udevadm", "verify", "--help").Run() != nil {
				t.Skip("not checked: udevadm cannot verify rules before version 254")
			}
			out, err := exec.Command("udevadm", "verify", "--no-style", filepath.Join(kmodNotes, "examples", name)).CombinedOutput()
			// The group is not there on every machine.
			if err != nil && !strings.Contains(string(out), "Unknown group 'trapeze'") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestInitramfsHook runs the hook as update-initramfs does, with the few functions
// that it needs.
func TestInitramfsHook(t *testing.T) {
	const name = "trapeze-initramfs-hook"
	hook := filepath.Join(kmodNotes, "examples", name)
	if st, err := os.Stat(hook); err != nil || st.Mode().Perm()&0o111 == 0 {
		t.Errorf("it cannot be executed: %v", err)
	}
	if out, err := exec.Command("sh", "-n", hook).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("shellcheck", func(t *testing.T) {
		needs(t, "shellcheck")
		if out, err := exec.Command("shellcheck", hook).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	if out, err := exec.Command("sh", hook, "prereqs").Output(); err != nil || string(out) != "udev\n" {
		t.Errorf("prereqs: %q, %v", out, err)
	}
	dir, dest := t.TempDir(), t.TempDir()
	functions, rule := filepath.Join(dir, "hook-functions"), filepath.Join(dir, "10-trapeze-bind.rules")
	text := strings.NewReplacer("/usr/share/initramfs-tools/hook-functions", functions, "rule=/etc/udev/rules.d/10-trapeze-bind.rules", "rule="+rule).Replace(example(t, name))
	changed := filepath.Join(dir, "hook")
	must.OK(t, errors.Join(os.WriteFile(changed, []byte(text), 0o600),
		os.WriteFile(functions, []byte(`force_load() { mkdir -p "$DESTDIR/conf"; echo "$@" >>"$DESTDIR/conf/modules"; }`), 0o600)))
	run := func() string {
		c := exec.Command("sh", changed)
		c.Env = append(os.Environ(), "DESTDIR="+dest)
		out, err := c.CombinedOutput()
		should.OK(t, err, "%s", out)
		return string(out)
	}
	should.Contain(t, run(), rule, "without the rule")
	if entries, err := os.ReadDir(dest); err != nil || len(entries) != 0 {
		t.Errorf("without the rule it leaves %v, %v", entries, err)
	}
	want := example(t, "10-trapeze-bind.rules")
	must.OK(t, os.WriteFile(rule, []byte(want), 0o600))
	should.Be(t, run(), "")
	for file, want := range map[string]string{"etc/udev/rules.d/10-trapeze-bind.rules": want, "conf/modules": "vfio-pci\n"} {
		if got, err := os.ReadFile(filepath.Join(dest, file)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
}
