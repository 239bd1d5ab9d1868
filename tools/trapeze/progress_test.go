package trapeze_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
)

// awaitProgress waits until a process has come so far.
func awaitProgress(t *testing.T, p *process, far func() bool) {
	t.Helper()
	waittest.Until(t, p.String()+" comes so far, or ends", func() bool { return far() || p.ended() })
	must.Hold(t, far(), "%s: it does not come so far: %s", p, &p.stderr)
}
