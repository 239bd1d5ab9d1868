package cells_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/cells"
)

// TestNext tries everything that can wait.
func TestNext(t *testing.T) {
	seen := map[cells.Step]bool{}
	for i := range 16 {
		w := cells.Waiting{Received: i&1 != 0, High: i&2 != 0, Low: i&4 != 0, Stopped: i&8 != 0}
		got := w.Next()
		seen[got] = true
		switch {
		case w.Received && got != cells.Receive,
			!w.Received && w.Stopped && got != cells.Idle,
			!w.Received && !w.Stopped && w.High && got != cells.High,
			!w.Received && !w.Stopped && !w.High && w.Low && got != cells.Low,
			!w.Received && !w.High && !w.Low && got != cells.Idle:
			t.Errorf("%+v: %v", w, got)
		}
	}
	names := map[string]bool{}
	for s := range cells.Steps {
		names[s.String()] = true
		if !seen[s] {
			t.Errorf("never %v", s)
		}
	}
	if len(names) != int(cells.Steps) || cells.Steps.String() != "unknown step" {
		t.Errorf("names %v", names)
	}
}
