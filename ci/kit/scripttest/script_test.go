package scripttest_test

import (
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/scripttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/script"
)

// TestRun runs cases whose only commands are say, which prints its words, and count.
func TestRun(t *testing.T) {
	runs := 0
	scripttest.Run(t, "testdata", func(t *testing.T) func(words []string) string {
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
	should.Be(t, runs, 1+6+4+1, "runs")
}
