// Package mutants keeps faults that tests have to notice. The script run puts them into copies of the
// sources; the test here looks at the patches alone.
package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

var (
	breaks  = regexp.MustCompile(`(?m)^Breaks: \S.*$`)
	noticed = regexp.MustCompile(`(?m)^Noticed by: (engine|driver|via|conform|model|\./\S+)( (engine|driver|via|conform|model|\./\S+))*$`)
)

// TestPatches: each patch applies to the sources, and says what it breaks and who notices that.
func TestPatches(t *testing.T) {
	patches, err := filepath.Glob("patches/*.patch")
	must.Hold(t, err == nil && len(patches) != 0, "%v, %v", patches, err)
	for _, p := range patches {
		t.Run(filepath.Base(p), func(t *testing.T) {
			text := must.Get(os.ReadFile(p))(t)
			should.Hold(t, breaks.Match(text) && noticed.Match(text), "it does not say what it breaks, or which suites have to notice that")
			name := must.Get(filepath.Abs(p))(t)
			cmd := exec.CommandContext(t.Context(), "git", "apply", "--check", name)
			cmd.Dir = "../.."
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("it no longer applies: %v\n%s", err, out)
			}
		})
	}
}
