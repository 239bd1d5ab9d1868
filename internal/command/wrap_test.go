package command_test

import (
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/command"
)

func TestWrap(t *testing.T) {
	long := strings.Repeat("word ", 20)
	for name, c := range map[string]struct{ text, want string }{
		"nothing":      {"", ""},
		"narrow":       {"a\nb\n\n  c\n", "a\nb\n\n  c\n"},
		"a paragraph":  {"first\n" + long + "\n\nx", "first" + strings.Repeat(" word", 15) + "\nword" + strings.Repeat(" word", 4) + "\n\nx"},
		"a row":        {"  name  " + long, "  name  " + strings.TrimSpace(strings.Repeat("word ", 14)) + "\n        " + strings.TrimSpace(strings.Repeat("word ", 6))},
		"two columns":  {"name  " + long, "name  word" + strings.Repeat(" word", 14) + "\n      word" + strings.Repeat(" word", 4)},
		"exactly":      {strings.Repeat("x", 80), strings.Repeat("x", 80)},
		"one too many": {strings.Repeat("x", 78) + " yz", strings.Repeat("x", 78) + "\nyz"},
		"a list":       {"  " + strings.Repeat("abc,", 25), "  " + strings.Repeat("abc,", 19) + "\n  " + strings.Repeat("abc,", 6)},
		"unbreakable":  {strings.Repeat("x", 90), strings.Repeat("x", 90)},
		"characters":   {strings.Repeat("é", 80) + " é", strings.Repeat("é", 80) + "\né"},
	} {
		if got := command.Wrap(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	const example = "  trapeze one --flag value --flag value --flag value --flag value --flag value --flag value"
	if got, want := command.WrapExample(example), "  trapeze one --flag value --flag value --flag value --flag value \\\n      --flag value --flag value"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
