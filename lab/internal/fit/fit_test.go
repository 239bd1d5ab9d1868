package fit_test

import (
	"context"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/lab/internal/fit"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

func rows(t *testing.T) []published.Row {
	t.Helper()
	f := must.Get(os.Open("../published/published.csv"))(t)
	defer func() {
		should.OK(t, f.Close())
	}()
	return must.Get(published.Read(f, "published.csv"))(t)
}

// builtIn returns the parameters that the built-in profiles hold.
func builtIn(t *testing.T) fit.Parameters {
	t.Helper()
	round := func(v float64, digits float64) float64 { return math.Round(v*digits) / digits }
	p := fit.Parameters{Platforms: map[string]fit.Own{}}
	for _, name := range fit.Names() {
		b := must.Get(profile.Hosts.Load(name))(t)
		s := fit.Shared{Decision: b.NIC.Decision.Microseconds(), Packet: b.NIC.Packet.Microseconds(),
			Completion: b.NIC.Completion.Microseconds(), Pulse: b.Link.Pulse.Overhead.Microseconds()}
		o := fit.Own{Read: round(b.Sender.Read.Bandwidth(), 10), Write: round(b.Receiver.Write.Bandwidth(), 10),
			Overhead: b.Sender.Read.Overhead.Microseconds(), Host: b.Host.Microseconds()}
		if name == "alcor-hpdc97" { // firmware of its own
			o.Completion, o.Link = s.Completion, round(b.Link.Pulse.Bandwidth(), 10)
			s.Completion = p.Shared.Completion
		}
		if len(p.Platforms) > 0 && s != p.Shared {
			t.Errorf("%s does not share the NIC's parameters: %+v, %+v", name, s, p.Shared)
		}
		p.Shared = s
		p.Platforms[name] = o
	}
	return p
}

// TestProfilesAreAMinimum: moving any parameter of the built-in profiles by a tenth
// does not make the fit noticeably better, so the files hold a fit and not a guess. Of the
// parameters of one platform each, an ordinary run moves those of the first.
func TestProfilesAreAMinimum(t *testing.T) {
	all := rows(t)
	base := builtIn(t)
	deviation := func(p fit.Parameters) float64 {
		return must.Get(fit.Deviation(context.Background(), all, p))(t)
	}
	at := deviation(base)
	for i, field := range []string{"Decision", "Packet", "Completion", "Pulse"} {
		for _, factor := range []float64{0.9, 1.1} {
			p := base
			v := reflect.ValueOf(&p.Shared).Elem().Field(i)
			v.SetFloat(v.Float() * factor)
			if d := deviation(p); d < 0.9*at {
				t.Errorf("%s x %g: deviation %.2f instead of %.2f", field, factor, d, at)
			}
		}
	}
	names := fit.Names()
	if !soak.Wanted() {
		names = names[:1]
	}
	for _, name := range names {
		for i, field := range []string{"Read", "Write", "Overhead", "Host"} {
			for _, factor := range []float64{0.97, 1.03} {
				p := base
				p.Platforms = maps.Clone(base.Platforms)
				own := p.Platforms[name]
				v := reflect.ValueOf(&own).Elem().Field(i)
				v.SetFloat(v.Float() * factor)
				p.Platforms[name] = own
				if d := deviation(p); d < 0.9*at {
					t.Errorf("%s, %s x %g: deviation %.2f instead of %.2f", name, field, factor, d, at)
				}
			}
		}
	}
}

// TestFitIsDeterministicAndBounded runs a short search twice.
func TestFitIsDeterministicAndBounded(t *testing.T) {
	table := func(r published.Row) bool { return strings.HasPrefix(r.Source, "CS-1997-20, Table 1") }
	short := fit.Effort{Outer: 1, Inner: 6}
	first := must.Get(fit.Fit(context.Background(), rows(t), table, short))(t)
	second := must.Get(fit.Fit(context.Background(), rows(t), table, short))(t)
	if !reflect.DeepEqual(first, second) {
		t.Errorf("%+v, then %+v", first, second)
	}
	for name, o := range first.Platforms {
		if o.Read < 90 || o.Read > 132 || o.Write < 45 || o.Write > 132 || o.Overhead <= 0 || o.Host < 1 {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestTransferHoldsTheFit: the built-in memory system has what the fit finds, to the
// cycle, and the rows for other rates take no part in it.
func TestTransferHoldsTheFit(t *testing.T) {
	all := rows(t)
	got := must.Get(fit.Transfer(context.Background(), all))(t)
	s := must.Get(profile.Systems.Load("sonic-via"))(t)
	should.Be(t, got, fit.Interface{Start: float64(s.NIC.Start / s.NIC.Cycle), Frame: float64(s.NIC.Frame / s.NIC.Cycle)}, "the platform has another fit")
	ends := slices.DeleteFunc(slices.Clone(all), func(r published.Row) bool { return r.ID != "004-033" && r.ID != "004-034" })
	must.Be(t, len(ends), 2, "rows")
	should.Give(fit.Transfer(context.Background(), ends))(t, got, "from the two ends alone")
}

func TestTransferEndsWithItsContext(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	should.Refuse(fit.Transfer(ended, rows(t)))(t, context.Canceled)
}
