package ticks_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/lab/internal/ticks"
)

func TestTicks(t *testing.T) {
	rate := ticks.Rate(20 * time.Millisecond)
	if !(rate > 0) {
		t.Fatalf("%v ticks in a nanosecond", rate)
	}
	start, before := time.Now(), ticks.Now()
	for time.Since(start) < 20*time.Millisecond {
	}
	if passed := ticks.Now() - before; passed == 0 || passed > 1<<50 {
		t.Errorf("%d ticks have passed", passed)
	}
	should.Be(t, testing.AllocsPerRun(100, func() { ticks.Now() }), 0, "allocations")
}
