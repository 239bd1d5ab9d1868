package commands_test

import (
	"strings"
	"testing"
)

// TestMemoryRefuses: what cannot be done is refused with what can.
func TestMemoryRefuses(t *testing.T) {
	needsProgram(t)
	_, near := udpPair(t, "")
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"part of a page": {[]string{"serve", "--device", near, "--size", "5"}, 2, "--size 5: bad option (allowed: whole pages: a multiple of 8K)"},
		"unknown host":   {[]string{"stat", "--device", "emu:?wire=udp://127.0.0.1:0&peer=no..host:9000"}, 3, "check the spelling of the host"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, append([]string{"memory"}, c.args...)...)
			if code := p.code(t); code != c.code || !strings.Contains(p.stderr.String(), c.want) {
				t.Errorf("exit code %d, %s", code, &p.stderr)
			}
		})
	}
}
