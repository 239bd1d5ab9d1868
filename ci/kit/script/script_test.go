package script_test

import (
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/script"
)

// TestRun runs cases whose only commands are say, which prints its words, and count.
func TestRun(t *testing.T) {
	runs := 0
	script.Run(t, "testdata", func(t *testing.T) func(words []string) string {
		runs++
		said := 0
		return func(words []string) string {
			t.Helper()
			switch words[0] {
			case "say":
				said++
				return strings.Join(words[1:], " ")
			case script.End:
				return strings.Repeat("said\n", min(said, 1))
			}
			t.Fatalf("there is no command %q", words[0])
			return ""
		}
	})
	if want := 1 + 6 + 4 + 1; runs != want {
		t.Errorf("%d runs, want %d", runs, want)
	}
}
