package report_test

import (
	"math"
	"testing"

	"github.com/trapeze-nic/trapeze/pipeline/profile"
	"github.com/trapeze-nic/trapeze/pipeline/report"
)

// measure runs a policy on an idle system and as a stream; auto has learned before.
func measure(t testing.TB, p *profile.Profile, policy string, payload, count int) *report.Figures {
	t.Helper()
	f, err := report.Case{Profile: p, Policy: policy, Payload: payload, Count: count, Warmup: -1}.Measure()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestAutoAgainstTheBest holds what docs/fidelity.md states for every profile and for
// payloads from 1 to 64 KiB: how far auto's latency is from the best schedule that
// search finds, its bandwidth from store and forward's, and its use of the bus from
// AMP's.
func TestAutoAgainstTheBest(t *testing.T) {
	cases, within, sum := 0, 0, 0.0
	for _, name := range profile.Names() {
		p, err := profile.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, payload := range []int{1024, 2048, 4096, 8192, 16384, 32768, 65536} {
			auto, best := measure(t, p, "auto", payload, 1), measure(t, p, "optimal", payload, 1)
			gap := float64(auto.Latency)/float64(best.Latency) - 1
			t.Logf("%-15s %6d B: best %9.3f us, auto %+.2f %% %+.3f us", name, payload, best.Latency.Microseconds(), 100*gap, (auto.Latency - best.Latency).Microseconds())
			cases++
			sum += math.Abs(gap)
			if gap <= 0.01 {
				within++
			}
			if gap > 0.03 {
				t.Errorf("%s, %d bytes: latency %+.2f %%", name, payload, 100*gap)
			}
			amp := measure(t, p, "amp", payload, 1)
			if float64(auto.Busy) > 1.002*float64(amp.Busy) {
				t.Errorf("%s, %d bytes: occupies the buses for %v us, AMP for %v us", name, payload, auto.Busy.Microseconds(), amp.Busy.Microseconds())
			}
			stream, whole := measure(t, p, "auto", payload, 200), measure(t, p, "store-and-forward", payload, 200)
			if stream.Bandwidth < 0.99*whole.Bandwidth {
				t.Errorf("%s, %d bytes: %v MB/s, store and forward %v MB/s", name, payload, stream.Bandwidth, whole.Bandwidth)
			}
		}
	}
	t.Logf("%d cases, %d within 1 %%, mean %.2f %%", cases, within, 100*sum/float64(cases))
	if mean := sum / float64(cases); mean > 0.01 || within*5 < cases*4 {
		t.Errorf("%d of %d cases within 1 %%, mean %.2f %%", within, cases, 100*mean)
	}
}
