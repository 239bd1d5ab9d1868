package cli_test

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/shelltest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

func TestUnwritableOutputIsRefusedAtOnce(t *testing.T) {
	const device = "emu:?wire=udp://127.0.0.1:0"
	t.Chdir(t.TempDir())
	if o := run(t, "recv", "--device", device, "--output", "no/such"); o.code != shell.ExitFailure || !strings.Contains(o.stderr, "no such file") || strings.Contains(o.stderr, "waiting") {
		t.Errorf("%+v", o)
	}
	must.OK(t, os.Chmod(".", 0o500))
	t.Cleanup(func() { _ = os.Chmod(".", 0o700) }) // for those who remove it
	if f, err := os.Create("x"); err == nil {
		f.Close()
		t.Skip("root writes anywhere")
	}
	for _, args := range [][]string{{"--output", "out"}, {}} {
		o := run(t, append([]string{"recv", "--device", device}, args...)...)
		if o.code != shell.ExitFailure || !strings.Contains(o.stderr, "permission denied") || strings.Contains(o.stderr, "waiting") {
			t.Errorf("%v: %+v", args, o)
		}
	}
}

// TestListedAddressesOpen: each form of address that list shows is one that opens.
func TestListedAddressesOpen(t *testing.T) {
	var r struct {
		Emulated []struct{ Address, Description string }
	}
	decode(t, run(t, "list", "--json", "--root", recordedHost(t)), &r)
	key := filepath.Join(t.TempDir(), "key")
	must.OK(t, os.WriteFile(key, []byte(strings.Repeat("5a", 32)), 0o600))
	wires := map[string]bool{}
	for _, e := range r.Emulated {
		_, wire, _ := strings.Cut(e.Address, "wire=")
		kind, _, _ := strings.Cut(wire, ":")
		wires[kind] = true
		address := strings.NewReplacer("peer=HOST:PORT", "peer=127.0.0.1:9", "HOST:PORT", "127.0.0.1:0", "NAME", "listed", "FILE", key, "PATH", filepath.Join(t.TempDir(), "socket"),
			"…", "mem:listed").Replace(e.Address)
		if scheme, _, _ := strings.Cut(address, ":"); scheme == "eth" || scheme == "agent" {
			// There is no such NIC here, but it is one that is looked for.
			address = strings.NewReplacer("FUNCTION", "ffff:ff:1f.7", "INTERFACE", "no-such-one").Replace(address)
			o := run(t, "info", "--device", address)
			should.Hold(t, o.code == shell.ExitDevice && !strings.Contains(o.stderr, "options of"), "%s: code %d, %s", e.Address, o.code, o.stderr)
			wires[scheme+":"] = true
			continue
		}
		var info struct{ Backend string }
		decode(t, run(t, "info", "--json", "--device", address), &info)
		should.Hold(t, info.Backend == "emulator" && e.Description != "", "%s: %+v, %q", e.Address, info, e.Description)
	}
	for _, kind := range []string{"", "mem", "udp", "shm", "memif", "host", "eth:", "agent:"} {
		should.Hold(t, wires[kind], "no address has a wire of kind %q: %v", kind, r.Emulated)
	}
}

// TestNothingStaysOpen runs commands that end well and badly.
func TestNothingStaysOpen(t *testing.T) {
	input, _ := file(t, "in", 10_000)
	commands := map[string]struct {
		args []string
		code int
	}{
		"info":           {[]string{"info"}, shell.ExitOK},
		"ping":           {[]string{"ping", "-c", "1"}, shell.ExitOK},
		"nobody answers": {[]string{"send", "--device", "emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:9", "--timeout", "50ms", input}, shell.ExitTimeout},
		"nobody sends":   {[]string{"recv", "--device", "emu:?wire=udp://127.0.0.1:0", "--timeout", "50ms"}, shell.ExitTimeout},
		"bad address":    {[]string{"info", "--device", "emu:?wire=udp://127.0.0.1:0&mtu=1"}, shell.ExitDevice},
	}
	all := func() {
		for _, c := range commands {
			run(t, c.args...).exit(t, c.code)
		}
		transferred(t, []string{"--output", "-"}, []string{input})
	}
	all() // what the runtime opens once
	before := leaktest.Files(t)
	all()
	after := leaktest.Files(t)
	should.Hold(t, after <= before, "%d file descriptors before, %d after", before, after)
}

// written are all commands and flags that write files. fw keygen has none: it replaces no
// key.
func written(t *testing.T) []shelltest.Writer {
	wire, image := []string{"--device", "emu:?wire=mem:writes"}, filepath.Join(t.TempDir(), "x.img")
	run(t, "fw", "build", "--image", "acl", "--output", image).exit(t, shell.ExitOK)
	key := filepath.Join(t.TempDir(), "key")
	run(t, "fw", "keygen", key).exit(t, shell.ExitOK)
	few := []string{"--count", "2"}
	return []shelltest.Writer{
		{Command: "capture", Flag: "output", Args: wire},
		{Command: "conform", Flag: "junit", Args: []string{"--section", "layout"}, Quick: true},
		{Command: "demo", Flag: "output", Args: []string{"--policies"}},
		{Command: "ping", Flag: "dma-log", Args: few, Quick: true},
		{Command: "recv", Flag: "output", Args: wire},
		{Command: "frames dump", Flag: "output", Args: []string{"--device", "emu:", "--duration", "1ms"}, Quick: true},
		{Command: "fw build", Flag: "output", Args: []string{"--image", "acl"}, Quick: true},
		{Command: "fw sign", Flag: "output", Args: []string{image, "--key", key + ".pem"}, Quick: true},
		{Command: "memory map", Flag: "save", Args: append(wire, "--timeout", "10s")},
	}
}

func TestFilesAreNotReplaced(t *testing.T) { program.TestNotReplaced(t, written(t)) }

func TestWritersAreListed(t *testing.T) { program.TestWriters(t, written(t)) }

var (
	shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	// shellWord is a word of a command, or what ends the command.
	shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"|&;>#])+|[|&;>#]`)
)

// TestCommandsOfPages: each trapeze that a page shows names a command, and has the flags and the number
// of arguments that the command takes. None runs: a last flag is wrong.
func TestCommandsOfPages(t *testing.T) {
	const root = "../../../../"
	pages := must.Get(filepath.Glob(root + "docs/*.md"))(t)
	found := 0
	for _, page := range append(pages, root+"README.md", root+"vipl/README.md") {
		text := must.Get(os.ReadFile(page))(t)
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
				words := shellWord.FindAllString(strings.TrimPrefix(line, "sudo "), -1)
				if len(words) == 0 || words[0] != "trapeze" {
					continue
				}
				var args []string
				for _, w := range words[1:] {
					if strings.Contains("|&;>#", w) {
						break
					}
					if !strings.HasPrefix(w, "$") { // several words
						args = append(args, strings.Trim(w, `'"`))
					}
				}
				found++
				run(t, append(slices.Clone(args), "--progress", "wrong")...).exit(t, shell.ExitUsage, "progress")
			}
		}
	}
	should.Hold(t, found >= 50, "%d commands were found", found)
}

// freePort finds a UDP port that nobody has at the moment.
func freePort(t *testing.T) int {
	t.Helper()
	c := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).Port
}
