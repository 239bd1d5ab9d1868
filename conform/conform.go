// Package conform holds the checks that every NIC must pass, whatever stands behind it: those of
// VIs, of rings and of channels. A back end joins by opening a pair of NICs:
//
//	func TestMyBackend(t *testing.T) {
//		conform.VIs().Run(t, "my back end", func(t *testing.T) (a, b *via.NIC) { … })
//	}
//
// 'trapeze conform' runs the same checks without go test, see Check.Run.
//
// Tests and benchmarks of other packages share the helpers: OpenNIC, OnMemory, World, End.
package conform

import (
	"context"
	"embed"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// Open opens two NICs that can reach each other. It arranges for both to be closed
// when the check ends (a check may close them before). A check may open several
// pairs, one after the other.
type Open func(t T) (a, b *via.NIC)

// Check is one check of a suite.
type Check struct {
	// Section that it belongs to, and its name there.
	Section, Name string
	run           func(*World)
	needs         *kind
	filtered      OpenFiltered // opens the NICs of a check of faults
}

// Suite is a list of checks, section by section.
type Suite []Check

// kind is a kind of endpoint that a NIC may lack.
type kind struct {
	name    string
	feature uint64 // of descriptors
	dial    func(ctx context.Context, nic *via.NIC, to via.Address) error
}

var (
	always   *kind
	ringKind = &kind{"rings", datasheet.FeatureRing, func(ctx context.Context, nic *via.NIC, to via.Address) error {
		_, err := ring.Dial(ctx, nic, to.String(), ring.Options{})
		return err
	}}
	channelKind = &kind{"channels", datasheet.FeatureChannel, func(ctx context.Context, nic *via.NIC, to via.Address) error {
		_, err := channel.Dial(ctx, nic, to.String(), channel.Options{})
		return err
	}}
)

// section is a section of a suite: the cases of its script, if it has one, and then checks in Go.
type section struct {
	name string
	more []entry
}

type entry struct {
	name string
	run  func(*World)
}

//go:embed scripts/*.txt
var scripts embed.FS

func suite(needs *kind, sections []section) (checks Suite) {
	for _, s := range sections {
		text, _ := scripts.ReadFile("scripts/" + s.name + ".txt") // a section without one has only checks in Go
		cases, err := script.Read(string(text))
		if err != nil {
			checks = append(checks, Check{Section: s.name, Name: "script", run: func(w *World) { w.Fatal(err) }})
		}
		for _, c := range cases {
			run := func(w *World) { w.script(c) }
			checks = append(checks, Check{Section: s.name, Name: strings.ReplaceAll(c.Name, "-", " "), run: run, needs: needs})
		}
		for _, e := range s.more {
			checks = append(checks, Check{Section: s.name, Name: e.name, run: e.run, needs: needs})
		}
	}
	return checks
}

// All returns all checks, in the order in which 'trapeze conform' runs them. open opens the NICs
// of Faults.
func All(open OpenFiltered) Suite {
	return slices.Concat(VIs(), Faults(open), Rings(), Channels())
}

// Sections returns the names of the suite's sections, in their order.
func (s Suite) Sections() (names []string) {
	for _, c := range s {
		if !slices.Contains(names, c.Section) {
			names = append(names, c.Section)
		}
	}
	return names
}

func (c Check) String() string { return c.Section + "/" + c.Name }

// check runs c as t.
func (c Check) check(t T, open Open) {
	checkFiles(t)
	w := &World{T: t, open: open}
	if c.filtered != nil {
		w.wire = &faultyWire{}
		w.A, w.B = c.filtered(t, w.wire.filter)
	} else {
		w.A, w.B = open(t)
	}
	if c.needs != always {
		c.needs.skipWithout(w)
		w.beginTally()
	}
	c.run(w)
}

// skipWithout skips a check if one of the NICs lacks the kind, and the driver says so.
func (k *kind) skipWithout(w *World) {
	for _, nic := range []*via.NIC{w.A, w.B} {
		if nic.Identity().Features&k.feature == 0 {
			err := k.dial(Context(w), nic, via.Address{MAC: nic.Query().Address})
			wantError(w, "a NIC without "+k.name, err, via.ErrNotSupported)
			w.Skip("the NIC has no "+k.name+":", err)
		}
	}
}

// Run runs the suite as a subtest of t: all of it, or only the checks that are named, as in
// "states/destroy", where NICs take long to open. It calls open once or more for each
// check, with a test of its own.
func (s Suite) Run(t *testing.T, name string, open func(t *testing.T) (a, b *via.NIC), only ...string) {
	t.Run(name, func(t *testing.T) {
		for _, name := range only {
			if !slices.ContainsFunc(s, func(c Check) bool { return c.String() == name }) {
				t.Errorf("there is no check %q", name)
			}
		}
		for _, c := range s {
			if len(only) > 0 && !slices.Contains(only, c.String()) {
				continue
			}
			t.Run(c.String(), func(t *testing.T) {
				c.check(t, func(t T) (a, b *via.NIC) { return open(t.(*testing.T)) })
			})
		}
	})
}
