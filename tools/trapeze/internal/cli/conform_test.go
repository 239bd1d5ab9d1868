package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cli"
)

type conformed struct {
	Device, Peer            string
	Passed, Failed, Skipped int
	Checks                  []struct {
		Section, Name, Result string
		Messages              []string
	}
}

// junitFile is what build servers read of it.
type junitFile struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Suites   []struct {
		Name  string `xml:"name,attr"`
		Cases []struct {
			Name    string `xml:"name,attr"`
			Failure *struct {
				Text string `xml:",chardata"`
			} `xml:"failure"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

func readJUnit(t *testing.T, path string) (f junitFile) {
	t.Helper()
	b := must.Get(os.ReadFile(path))(t)
	must.OK(t, xml.Unmarshal(b, &f))
	return f
}

func TestConform(t *testing.T) {
	var all, some conformed
	decode(t, run(t, "conform", "--list", "--json"), &all)
	should.Hold(t, len(all.Checks) >= 50 && all.Checks[0].Section == "layout" && all.Checks[0].Result == "", "%+v", all)
	if o := run(t, "conform", "--list"); o.code != shell.ExitOK || strings.Count(o.stdout, "\n") != len(all.Checks) || !strings.Contains(o.stdout, "\nlimits/attributes\n") {
		t.Errorf("%+v", o)
	}
	file := filepath.Join(t.TempDir(), "junit.xml")
	decode(t, run(t, "conform", "--json", "--section", "cq", "--section", "limits", "--run", "(too small|completions)$", "--junit", file), &some)
	if some.Passed != 2 || some.Failed != 0 || len(some.Checks) != 2 || some.Checks[0].Section != "cq" || some.Checks[1].Name != "CQ too small" || some.Checks[1].Result != "passed" {
		t.Errorf("%+v", some)
	}
	if f := readJUnit(t, file); f.Tests != 2 || f.Failures != 0 || len(f.Suites) != 2 || f.Suites[1].Name != "limits" || f.Suites[1].Cases[0].Name != "CQ too small" {
		t.Errorf("%+v", f)
	}
	decode(t, run(t, "conform", "--json", "--section", "channels", "--run", "(one cell|drops)$", "--junit", file, "--force"), &some)
	should.Hold(t, some.Passed == 2 && some.Failed == 0 && len(some.Checks) == 2 && some.Checks[0].Section == "channels", "%+v", some)
	if f := readJUnit(t, file); f.Tests != 2 || len(f.Suites) != 1 || f.Suites[0].Name != "channels" || f.Suites[0].Cases[1].Name != "drops" {
		t.Errorf("%+v", f)
	}
	some = conformed{}
	decode(t, run(t, "conform", "--json", "--section", "faults"), &some)
	should.Hold(t, some.Passed >= 9 && some.Passed == len(some.Checks), "%+v", some)
	o := run(t, "conform", "--section", "layout")
	if o.code != shell.ExitOK || !strings.HasPrefix(o.stdout, "layout\n  passed  ") || !strings.Contains(o.stdout, "4 passed, 0 failed, 0 skipped in ") {
		t.Errorf("%+v", o)
	}
}

// TestConformFails runs it over NICs that cannot reach each other.
func TestConformFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "junit.xml")
	args := []string{"conform", "--device", "emu:?wire=mem:conform-here", "--peer", "emu:?wire=mem:conform-there", "--timeout", "1s",
		"--run", "^(send-receive/immediate data|memory/ptag in use)$", "--junit", file}
	o := run(t, args...)
	if o.code != shell.ExitFailure || !strings.Contains(o.stdout, "1 passed, 1 failed, 0 skipped") || !strings.Contains(o.stdout, "failed: connect x y") ||
		!strings.HasSuffix(o.stderr, "1 of 2 checks failed\n") {
		t.Errorf("%+v", o)
	}
	if f := readJUnit(t, file); f.Tests != 2 || f.Failures != 1 || f.Suites[0].Cases[0].Failure == nil || !strings.Contains(f.Suites[0].Cases[0].Failure.Text, "failed: connect x y") {
		t.Errorf("%+v", f)
	}
}

func TestConformArguments(t *testing.T) {
	for says, args := range map[string][]string{
		"--peer is required":   {"--device", "emu:?wire=mem:x"},
		"--device is required": {"--peer", "emu:?wire=mem:x"},
		"--device emu:?wire=udp://[::1]:9701: bad option (allowed: with peer=": {
			"--device", "emu:?wire=udp://[::1]:9701", "--peer", "emu:?wire=udp://[::1]:9702&peer=[::1]:9701"},
		"--section states-of-mind":     {"--section", "states-of-mind"},
		"--run (":                      {"--run", "("},
		"no check is called so":        {"--run", "^nothing$"},
		"there is nothing for --junit": {"--list", "--junit", "x"},
	} {
		run(t, append([]string{"conform"}, args...)...).refused(t, shell.ExitUsage, says)
	}
	for says, args := range map[string][]string{
		"its wire ends at itself": {"--device", "emu:", "--peer", "emu:?wire=mem:x"},
		"no such file":            {"--device", "vfio-user:/no/such", "--peer", "vfio-user:/no/such"},
	} {
		run(t, append([]string{"conform"}, args...)...).exit(t, shell.ExitDevice, says)
	}
	missing := filepath.Join(t.TempDir(), "no", "junit.xml")
	run(t, "conform", "--junit", missing).refused(t, shell.ExitFailure, filepath.Dir(missing))
}

// interrupter interrupts a command as soon as it writes a text.
type interrupter struct {
	bytes.Buffer
	text   string
	cancel context.CancelCauseFunc
}

func (i *interrupter) Write(b []byte) (int, error) {
	n, err := i.Buffer.Write(b)
	if strings.Contains(i.String(), i.text) {
		i.cancel(&shell.SignalError{Number: 2, Name: "SIGINT"})
	}
	return n, err
}

// TestConformInterrupted: one that is stopped shows the checks that had ended, and says that
// they are not all.
func TestConformInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	out, remarks := &interrupter{text: "passed", cancel: cancel}, new(bytes.Buffer)
	code := cli.Program.Run(ctx, []string{"conform", "--section", "cq"}, nil, out, remarks)
	if code != 130 || !strings.Contains(out.String(), "\n1 passed, 0 failed, 0 skipped") || !strings.Contains(out.String(), "\nIncomplete, it ended early: stopped by SIGINT\n") {
		t.Errorf("exit code %d, stdout %s, stderr %s", code, out, remarks)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	steps := &interrupter{text: "checking", cancel: cancel}
	out = &interrupter{text: "\x00"}
	code = cli.Program.Run(ctx, []string{"conform", "--json", "--progress", "plain"}, nil, out, steps)
	var r struct {
		conformed
		Incomplete string
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || code != 130 || r.Incomplete != "stopped by SIGINT" || len(r.Checks) != r.Passed+r.Failed+r.Skipped {
		t.Errorf("%v, exit code %d, %s", err, code, out)
	}
}
