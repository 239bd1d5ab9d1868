package checker_test

import (
	"errors"
	"flag"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// programs is the environment variable that says how many programs a test compares.
const programs = "TRAPEZE_CHECKER_PROGRAMS"

// checks sets how many programs rapid.Check draws in this test's soak. Otherwise it draws a tenth of
// them.
func checks(t *testing.T, n int) {
	t.Helper()
	switch v, err := strconv.Atoi(os.Getenv(programs)); {
	case err == nil:
		n = v
	case !soak.Wanted():
		n /= 10
	}
	set := func(name, value string) {
		before := flag.Lookup(name).Value.String()
		must.OK(t, flag.Set(name, value))
		t.Cleanup(func() { flag.Set(name, before) })
	}
	set("rapid.checks", strconv.Itoa(n))
	// The same programs each time, so that a change is judged by what it does and
	// not by luck. Others with -rapid.seed.
	if flag.Lookup("rapid.seed").Value.String() == "0" {
		set("rapid.seed", "1")
	}
}

// tally counts verdicts.
type tally struct {
	accepted, refused  int
	listed             int            // of those accepted: refused by the kernel, and known
	asked, refusedOnly int            // of those refused: shown to the kernel, accepted by it
	reasons            map[string]int // of those that the kernel accepts
}

func newTally() *tally { return &tally{reasons: map[string]int{}} }

// compare holds the checker's verdict against the kernel's. Of programs that the
// checker refuses, it shows the kernel some: what the kernel thinks of them is for
// our information. It is not asked about loops that take it seconds.
func (c *tally) compare(t *rapid.T, k *kernel, p abi.Program) {
	_, err := checker.Check(p)
	if err == nil {
		c.accepted++
		kernelErr := k.load(p, false)
		if kernelErr == nil {
			return
		}
		if c.listed++; !k.listed(p, kernelErr) {
			t.Fatalf("%v: accepted, but the kernel refuses it:\n%v\n%s", p.Hook, p.Instructions, k.why(p))
		}
		return
	}
	c.refused++
	if c.refused%4 != 0 || errors.Is(err, checker.ErrBudget) || errors.Is(err, checker.ErrEndless) || errors.Is(err, checker.ErrComplex) {
		return
	}
	c.asked++
	if k.load(p, false) == nil {
		c.refusedOnly++
		c.reasons[errors.Unwrap(err).Error()]++
	}
}

// report logs the counts. At least one in so many programs has to be accepted, of more
// than a few.
func (c *tally) report(t *testing.T, oneIn int) {
	t.Logf("accepted: %d, of which the kernel refuses %d, as listed. Refused: %d. Of %d of these the kernel accepts %d:",
		c.accepted, c.listed, c.refused, c.asked, c.refusedOnly)
	for reason, n := range c.reasons {
		t.Logf("%8d %v", n, reason)
	}
	if all := c.accepted + c.refused; all > 100 && c.accepted*oneIn < all {
		t.Errorf("of %d programs only %d were accepted: the comparison says little", all, c.accepted)
	}
}

func TestGeneratedProgramsAgainstKernel(t *testing.T) {
	k := newKernel(t, testMaps())
	checks(t, 5000)
	counts := newTally()
	rapid.Check(t, func(t *rapid.T) {
		hook := abi.Hook(rapid.IntRange(0, int(abi.Hooks)-1).Draw(t, "hook"))
		g := &generator{T: t, hook: hook, maps: testMaps()}
		counts.compare(t, k, g.program())
	})
	counts.report(t, 4)
}

func TestMutatedProgramsAgainstKernel(t *testing.T) {
	k := newKernel(t, testMaps())
	checks(t, 5000)
	counts := newTally()
	originals := samples()
	rapid.Check(t, func(t *rapid.T) {
		counts.compare(t, k, drawProgram(t, originals))
	})
	counts.report(t, 20)
}
