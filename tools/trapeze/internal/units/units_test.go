package units_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
)

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1536 B", 3 << 19: "1536 KiB", 1 << 20: "1 MiB",
		1 << 30: "1 GiB", 1 << 40: "1024 GiB", 1<<30 + 1<<20: "1025 MiB",
	} {
		should.Be(t, units.Size(n), want, "%d", n)
	}
}

func TestMicroseconds(t *testing.T) {
	should.Be(t, units.Microseconds(1500*time.Nanosecond), 1.5)
}
