package nic

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestIdentity: the NICs say who they are, and that they are well.
func TestIdentity(t *testing.T) {
	a, b := openPair(t)
	for _, n := range []*driver.NIC{a, b} {
		id := n.Identity()
		should.Hold(t, id.MaxEndpoints >= 2 && id.MaxQueueDepth >= 16 && id.MTU >= datasheet.MinMTU && len(id.Blocks) >= 3, "identity %+v", id)
		h, err := n.Health(t.Context())
		should.Hold(t, err == nil && h.Ready && !h.Fatal && h.Resets != 0, "health %+v, %v", h, err)
		first, err := n.Clock()
		should.OK(t, err)
		if second, err := n.Clock(); err != nil || second < first {
			t.Errorf("clock %v, then %v, %v", first, second, err)
		}
		counters, err := n.Counters()
		_, ok := counters[datasheet.CounterMessagesSent.String()]
		should.Hold(t, ok && err == nil, "counters %v, %v", counters, err)
	}
}

// suiteLimit ends the suite: a guest without hardware acceleration is slow.
const suiteLimit = 30 * time.Minute

// TestVIA puts the NICs through the suites of VIs, rings and channels that also run over the emulated
// NIC in one process and over vfio-user, with the command; then what moves messages with all
// memory eager. That of VIs takes half of the time: it has a guest of its own. A long run takes all
// sections; a short one those that map memory, ring doorbells and wait for interrupts.
func TestVIA(t *testing.T) {
	a, b := two(t)
	vis, eager := conform.VIs().Sections(), []string{"send-receive", "rdma"}
	if os.Getenv(soak.Variable) == "" { // not soak.Wanted: CI's step of that name has no guest
		vis, eager = []string{"connection", "cq", "memory", "send-receive", "rdma"}, eager[1:]
	}
	for name, part := range map[string]struct {
		sections []string
		flags    []string
	}{
		"VIs":                {vis, nil},
		"rings and channels": {slices.Concat(conform.Rings().Sections(), conform.Channels().Sections()), nil},
		"eager":              {eager, []string{"--eager"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
			defer cancel()
			args := append([]string{"conform", "--device", a, "--peer", b}, part.flags...)
			for _, section := range part.sections {
				args = append(args, "--section", section)
			}
			out, err := exec.CommandContext(ctx, trapeze, args...).CombinedOutput()
			t.Logf("%s", out)
			should.OK(t, err)
		})
	}
}
