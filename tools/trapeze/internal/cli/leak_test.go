package cli_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

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
		for name, c := range commands {
			if o := run(t, c.args...); o.code != c.code {
				t.Errorf("%s: %+v", name, o)
			}
		}
		if r, s := transferFile(t, nil, "", []string{"--output", "-"}, []string{input}); r.code != 0 || s.code != 0 {
			t.Errorf("%+v, %+v", r, s)
		}
	}
	all() // what the runtime opens once
	before := leaktest.Files(t)
	all()
	if after := leaktest.Files(t); after > before {
		t.Errorf("%d file descriptors before, %d after", before, after)
	}
}
