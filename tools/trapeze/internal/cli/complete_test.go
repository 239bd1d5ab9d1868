package cli_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
)

// offered is what a shell is offered for the last of args, and whether it may offer
// files besides.
func offered(t *testing.T, args ...string) (words []string, files bool) {
	t.Helper()
	o := run(t, append([]string{"__complete"}, args...)...)
	lines := strings.Split(strings.TrimSuffix(o.stdout, "\n"), "\n")
	for _, l := range lines[:len(lines)-1] {
		word, _, _ := strings.Cut(l, "\t")
		words = append(words, word)
	}
	return words, !strings.Contains(o.stderr, "NoFileComp")
}

func TestCompletion(t *testing.T) {
	nic := hostpcitest.NIC().Address
	free, bound := bindableHost(t), boundHost(t)
	for _, c := range []struct {
		args  []string
		want  string // one of the words; empty if there must be none
		files bool
	}{
		{[]string{"recv", "--device", ""}, "emu:", false},
		{[]string{"recv", "--device", "emu:"}, "emu:?wire=udp://", false},
		{[]string{"bind", "--root", free, ""}, nic, false},
		{[]string{"bind", "--root", bound, ""}, "", false},
		{[]string{"bind", "--root", free, nic, ""}, "", false},
		{[]string{"unbind", "--root", free, ""}, "", false},
		{[]string{"unbind", "--root", bound, ""}, nic, false},
		{[]string{"doctor", "--root", bound, ""}, nic, false},
		{[]string{"ping", "--policy", ""}, "amp", false},
		{[]string{"ping", "--policy-at", ""}, "host", false},
		{[]string{"send", "--device", "emu:", ""}, "", true},
		{[]string{"recv", "--output", ""}, "", true},
		{[]string{"list", ""}, "", false},
		{[]string{"list", "--progress", ""}, "plain", false},
		{[]string{"demo", "--image", ""}, "acl", false},
		{[]string{"load", ""}, "image:acl", true},
		{[]string{"fw", "show", "image:"}, "image:count", true},
		{[]string{"conform", "--section", ""}, "rings", false},
		{[]string{"recv", "--device", "emu:?wire=mem:a&"}, "emu:?wire=mem:a&peer=", false},
		{[]string{"recv", "--device", "emu:?mtu=1500&wire=u"}, "emu:?mtu=1500&wire=udp://", false},
		{[]string{"help", "fw", ""}, "build", false},
		{[]string{"fw", ""}, "build", false},
	} {
		words, files := offered(t, c.args...)
		if c.want != "" && !slices.Contains(words, c.want) || c.want == "" && len(words) > 0 || files != c.files {
			t.Errorf("%q: offered %q, files %v", c.args, words, files)
		}
	}
}
