package trapeze_test

import (
	"testing"
	"time"
)

// awaitProgress waits until a process has come so far.
func awaitProgress(t *testing.T, p *process, far func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !far(); time.Sleep(time.Millisecond) {
		if p.ended() || time.Now().After(deadline) {
			t.Fatalf("%s: it does not come so far: %s", p, &p.stderr)
		}
	}
}
