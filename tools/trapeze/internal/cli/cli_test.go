package cli_test

import (
	"context"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cli"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// outcome of a command.
type outcome struct {
	args           []string
	code           int
	stdout, stderr string
}

// exit claims how a command has ended, and what it says: on stdout if all is well, else on stderr.
func (o outcome) exit(t *testing.T, code int, says ...string) {
	t.Helper()
	text := o.stderr
	if code == shell.ExitOK {
		text = o.stdout
	}
	for _, s := range says {
		should.Contain(t, text, s, "trapeze %q", o.args)
	}
	should.Hold(t, o.code == code, "trapeze %q: exit code %d, want %d, stdout %q, stderr %q", o.args, o.code, code, o.stdout, o.stderr)
}

// refused is exit for a command that has printed no result.
func (o outcome) refused(t *testing.T, code int, says ...string) {
	t.Helper()
	o.exit(t, code, says...)
	should.Be(t, o.stdout, "", "stdout of trapeze %q", o.args)
}

func runWith(ctx context.Context, stdin io.Reader, args ...string) outcome {
	var out, errs outputtest.Buffer
	if stdin == nil {
		stdin = strings.NewReader("")
	}
	code := cli.Program.Run(ctx, args, stdin, &out, &errs)
	return outcome{args, code, out.String(), errs.String()}
}

func run(t *testing.T, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return runWith(ctx, strings.NewReader(""), args...)
}

// decode reads the one JSON object that a command printed, and nothing else.
func decode(t *testing.T, o outcome, into any) {
	t.Helper()
	must.Hold(t, o.code == shell.ExitOK && o.stderr == "", "exit code %d, stderr %q", o.code, o.stderr)
	d := json.NewDecoder(strings.NewReader(o.stdout))
	must.OK(t, d.Decode(into), "in %q", o.stdout)
	_, err := d.Token()
	should.Hold(t, err == io.EOF, "something follows the object: %q", o.stdout)
}

func TestBadCommandLines(t *testing.T) {
	const udp = "emu:?wire=udp://127.0.0.1:0"
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no such command":       {[]string{"fly"}, shell.ExitUsage, `unknown command "fly"`},
		"send without file":     {[]string{"send", "--device", udp}, shell.ExitUsage, "trapeze send takes FILE, and was given []"},
		"send to nonsense":      {[]string{"send", "--device", udp, "--to", "02:00", "x"}, shell.ExitUsage, "MAC"},
		"name with a slash":     {[]string{"send", "--device", udp, "--name", "a/b", "-"}, shell.ExitUsage, "--name"},
		"ping of enormous size": {[]string{"ping", "--size", "1073741825"}, shell.ExitUsage, "--size"},
		"serve to nobody":       {[]string{"ping", "--serve"}, shell.ExitUsage, "--device"},
		"unknown scheme":        {[]string{"info", "--device", "usb:1"}, shell.ExitDevice, "emu"},
		"a port of frames":      {[]string{"info", "--device", "afxdp:lo"}, shell.ExitDevice, "'trapeze frames' takes; as the wire of a NIC it is eth:lo"},
		"a port of a switch":    {[]string{"recv", "--device", "vhost-user:/x"}, shell.ExitDevice, "as the wire of a NIC it is eth:vhost-user:/x"},
		"a port with options":   {[]string{"info", "--device", "afxdp:lo?mode=generic&queue=1"}, shell.ExitDevice, "as the wire of a NIC it is eth:lo%3Fmode=generic%26queue=1"},
		"a wire with options":   {[]string{"info", "--device", "memif:/x?role=client&id=1"}, shell.ExitDevice, "as a device it is 'emu:?wire=memif:/x&role=client&id=1'"},
		"a wire of the host":    {[]string{"info", "--device", "host:x"}, shell.ExitDevice, "as a device it is 'emu:?wire=host:x'"},
		"a wire":                {[]string{"fw", "status", "--device", "udp://h:1"}, shell.ExitDevice, "as a device it is 'emu:?wire=udp://h:1'"},
		"unknown option":        {[]string{"info", "--device", "emu:?speed=11"}, shell.ExitDevice, "speed"},
		"bad option value":      {[]string{"info", "--device", "emu:?loss=2"}, shell.ExitDevice, "loss"},
		"option given twice":    {[]string{"info", "--device", "emu:?loss=0&loss=1"}, shell.ExitDevice, "2 times"},
		"wire to nowhere":       {[]string{"recv", "--device", "emu:?wire=udp://256.0.0.1:1"}, shell.ExitDevice, "256.0.0.1"},
		"recv from itself":      {[]string{"recv", "--device", "emu:"}, shell.ExitDevice, "wire=udp"},
		"send to itself":        {[]string{"send", "--device", "emu:?wire=loop", "x"}, shell.ExitDevice, "wire=udp"},
		"input that is not":     {[]string{"send", "--device", udp, "/nonexistent/file"}, shell.ExitFailure, "no such file"},
		"input is a directory":  {[]string{"send", "--device", udp, "/"}, shell.ExitFailure, "directory"},
		"demo of nothing":       {[]string{"demo", "--input", "/nonexistent/file"}, shell.ExitFailure, "no such file"},
		"demo of a directory":   {[]string{"demo", "--input", "/"}, shell.ExitFailure, "regular"},
		"output is a directory": {[]string{"recv", "--device", udp, "--force", "--output", "/"}, shell.ExitFailure, "directory"},
		"no sysfs":              {[]string{"list", "--root", "/nonexistent"}, shell.ExitFailure, "/nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, c.args...)
			o.exit(t, c.code, c.says)
			if !strings.HasPrefix(o.stderr, "trapeze: ") || strings.Count(o.stderr, "\n") != 1 || o.stdout != "" {
				t.Errorf("not one line on stderr: %q, stdout %q", o.stderr, o.stdout)
			}
		})
	}
}

// TestOwnWords: what is wrong with an argument or a flag is said in words of ours, with what is
// wanted and what was given.
func TestOwnWords(t *testing.T) {
	foreign := regexp.MustCompile(`strconv\.|time: |accepts |arg\(s\)|error parsing|parse error|invalid syntax`)
	for args, says := range map[string]string{
		"fw map x":                       `fw map takes IMAGE NAME [OPERATION] [KEY] [VALUE], and was given ["x"]`,
		"fw keygen":                      `fw keygen takes NAME, and was given []`,
		"ping --count x":                 `invalid argument "x" for "-c, --count" flag: it is a whole number, 0 or more`,
		"memory cooperate --device emu:": `--name is required: a name, as this client does nothing without it or --reads`,
		"memory cooperate --device emu: --name a":        `--client is required: the addresses of all clients`,
		"memory map --device emu: --client a/b/c":        `--client "a/b/c"`,
		"memory demo --size 5":                           `"--size" flag: it is a number of bytes in 1M..64G`,
		"memory serve --device emu:?wire=mem:x --size 5": `--size 5: bad option (allowed: whole pages: a multiple of 8K)`,
		"conform --run (":                                `--run (: bad option (allowed: a regular expression; missing closing ) in ()`,
		"emulate --socket s --mode 9":                    `--mode 9: bad option (allowed: octal permissions`,
	} {
		o := run(t, strings.Fields(args)...)
		if o.code != shell.ExitUsage || !strings.Contains(o.stderr, says) || foreign.MatchString(o.stderr) {
			t.Errorf("%s: exit code %d, %q does not say %q", args, o.code, o.stderr, says)
		}
	}
}

func TestHelp(t *testing.T) {
	o := run(t, "help", "exit-codes")
	for _, code := range []string{"0  all", "1  it", "2  it", "3  the", "4  the", "5  time", "129  hung", "130  int", "141  stdout has no reader", "143  term"} {
		should.Contain(t, o.stdout, code, "exit-codes lacks")
	}
	run(t).exit(t, shell.ExitOK, "Available Commands:")
}

func TestVersion(t *testing.T) {
	var v map[string]any
	decode(t, run(t, "version", "--json"), &v)
	should.Hold(t, v["go"] != "" && v["version"] != "" && strings.HasPrefix(v["platform"].(string), "linux/"), "got %v", v)
	o := run(t, "version")
	should.Hold(t, strings.HasPrefix(o.stdout, "trapeze "), "got %+v", o)
}
