// Package scripttest runs the cases of package script in go test. Its flag -rewrite makes what is printed
// what is expected.
package scripttest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/script"
)

var rewrite = flag.Bool("rewrite", false, "make what scripts print what is expected of them")

// Run runs the cases of all files *.txt in folder, each combination of a case in a test of its own.
// begin returns what carries out the commands of one. It fails the test on a command that it does not
// understand.
func Run(t *testing.T, folder string, begin func(t *testing.T) (do func(words []string) string)) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	must.Hold(t, err == nil && len(files) != 0, "no scripts in %s: %v", folder, err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runFile(t, file, begin) })
	}
}

func runFile(t *testing.T, file string, begin func(t *testing.T) func(words []string) string) {
	text := string(must.Get(os.ReadFile(file))(t))
	cases, err := script.Read(text)
	must.OK(t, err, "%s", file)
	var now strings.Builder
	at := 0
	for _, c := range cases {
		out, all := c.Run(func(name string, play script.Play) (out string, ran bool) {
			t.Run(name, func(t *testing.T) {
				ran = true
				out = play(observed(t, begin(t)))
			})
			return out, ran
		})
		switch {
		case !all: // -run chooses others
			out = c.Want
		case out != c.Want && !*rewrite:
			t.Errorf("%s:%d: case %s prints\n%swant\n%s", file, c.Line, c.Name, out, c.Want)
		}
		now.WriteString(text[at:c.From] + out)
		at = c.To
	}
	now.WriteString(text[at:])
	if *rewrite && now.String() != text {
		must.OK(t, os.WriteFile(file, []byte(now.String()), 0o644))
	}
}

// observed logs where a case has failed, and what it has printed until then.
func observed(t *testing.T, do func(words []string) string) func(words []string) string {
	var so string
	return func(words []string) (out string) {
		ended := false
		defer func() {
			if t.Failed() || !ended {
				t.Logf("after\n%sfailed: %s", so, strings.Join(words, " "))
			}
		}()
		out = do(words)
		if out != "" {
			so += strings.TrimSuffix(out, "\n") + "\n"
		}
		ended = true
		return out
	}
}
