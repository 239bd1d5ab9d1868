package pipeline_test

import (
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/pipeline"
	"pgregory.net/rapid"
)

// learned is how many frames of a length Auto has seen before it is measured.
const learned = pipeline.AutoLearns

// TestAutoLearns: a lone engine under Auto is as good as the best threshold that trying
// all of them finds, within 0.2 % and a fiftieth of a set-up if the mover says how
// frames end, within 1 % and an eighth of one if it does not. Where bytes should be
// early it may give up to one set-up for that.
func TestAutoLearns(t *testing.T) {
	for name, p := range platforms {
		unit := float64(p.setup + p.decision)
		for _, length := range []int{1024, 1500, 8192, 20000, 65536} {
			best := float64(p.best(t, length))
			for _, c := range []struct {
				what    string
				prefer  pipeline.Preference
				frame   func(t *testing.T, d *pipeline.Device, length int) (int64, int)
				allowed float64
			}{
				{"few transfers", pipeline.FewTransfers, p.frame, 1.002*best + unit/50},
				{"few transfers, not told", pipeline.FewTransfers, p.move, 1.01*best + unit/8},
				{"early bytes", pipeline.EarlyBytes, p.frame, 1.002*best + unit},
				{"early bytes, not told", pipeline.EarlyBytes, p.move, 1.01*best + unit},
			} {
				d := device(t, pipeline.NewAuto(c.prefer), 2)
				for range learned {
					c.frame(t, d, length)
				}
				for range 10 {
					if end, _ := c.frame(t, d, length); float64(end) > c.allowed {
						t.Errorf("%s, %s, %d bytes: %d ps, best eager %.0f ps (%+.2f %%)", name, c.what, length, end, best, 100*(float64(end)/best-1))
						break
					}
				}
			}
		}
	}
}

// TestAutoFollowsChange: 200 frames after bandwidth or overhead changed by a factor
// of two, Auto is within 3 % of the best threshold for the new platform.
func TestAutoFollowsChange(t *testing.T) {
	for name, p := range platforms {
		for what, change := range map[string]func(*platform){
			"slower engine":   func(p *platform) { p.perByte *= 2 },
			"faster engine":   func(p *platform) { p.perByte /= 2 },
			"slower source":   func(p *platform) { p.arrival *= 2 },
			"faster source":   func(p *platform) { p.arrival /= 2 },
			"dearer set-up":   func(p *platform) { p.setup *= 2 },
			"cheaper set-up":  func(p *platform) { p.setup /= 2 },
			"slower decision": func(p *platform) { p.decision *= 2 },
		} {
			changed := p
			change(&changed)
			best := changed.best(t, 8192)
			for told, frame := range map[bool]func(p platform, d *pipeline.Device) (int64, int){
				true:  func(p platform, d *pipeline.Device) (int64, int) { return p.frame(t, d, 8192) },
				false: func(p platform, d *pipeline.Device) (int64, int) { return p.move(t, d, 8192) },
			} {
				d := device(t, pipeline.NewAuto(pipeline.FewTransfers), 2)
				for range 100 {
					frame(p, d)
				}
				for range 200 {
					frame(changed, d)
				}
				if end, _ := frame(changed, d); float64(end) > 1.03*float64(best) {
					t.Errorf("%s, %s, told %v: %d ps, best eager %d ps (%+.1f %%)", name, what, told, end, best, 100*(float64(end)/float64(best)-1))
				}
			}
		}
	}
}

// TestAutoSettles: on a platform that does not change, frames are alike once it has
// learned, and take no more transfers than AMP's.
func TestAutoSettles(t *testing.T) {
	for name, p := range platforms {
		auto, amp := device(t, pipeline.NewAuto(pipeline.FewTransfers), 2), device(t, pipeline.Eager{MinPulse: pipeline.DefaultMinPulse}, 2)
		for range learned {
			p.frame(t, auto, 8192)
		}
		end, transfers := p.frame(t, auto, 8192)
		if _, most := p.frame(t, amp, 8192); transfers > most {
			t.Errorf("%s: %d transfers, AMP %d", name, transfers, most)
		}
		for range 300 {
			if e, n := p.frame(t, auto, 8192); e != end || n != transfers {
				t.Errorf("%s: %d ps in %d transfers, then %d ps in %d", name, end, transfers, e, n)
				break
			}
		}
	}
}

// TestAutoWithManyLengths: frames of three lengths in turn are as good as frames of one.
func TestAutoWithManyLengths(t *testing.T) {
	lengths := []int{1024, 8192, 30000}
	for name, p := range platforms {
		mixed := device(t, pipeline.NewAuto(pipeline.FewTransfers), 2)
		for range learned {
			for _, n := range lengths {
				p.frame(t, mixed, n)
			}
		}
		for _, n := range lengths {
			end, _ := p.frame(t, mixed, n)
			if best := p.best(t, n); float64(end) > 1.005*float64(best)+float64(p.setup+p.decision)/20 {
				t.Errorf("%s, %d bytes: %d ps, best eager %d ps", name, n, end, best)
			}
		}
	}
}

// TestAutoOnAnUnsteadyPlatform: where costs vary from frame to frame, by so much that
// one frame says little, and a few take much longer, frames take about as long in the
// mean as under AMP.
func TestAutoOnAnUnsteadyPlatform(t *testing.T) {
	mean := func(p platform, policy pipeline.Policy, by float64, seed uint64) float64 {
		d := device(t, policy, 2)
		r := rand.New(rand.NewPCG(seed, 0))
		sum := int64(0)
		for i := range 1500 {
			end, _ := p.varied(r, by).frame(t, d, 8192)
			if i >= 300 {
				sum += end
			}
		}
		return float64(sum)
	}
	for name, p := range platforms {
		for _, by := range []float64{0.02, 0.1, 0.3} {
			for seed := range uint64(3) {
				amp := mean(p, pipeline.Eager{MinPulse: pipeline.DefaultMinPulse}, by, seed)
				if auto := mean(p, pipeline.NewAuto(pipeline.FewTransfers), by, seed); auto > 1.04*amp {
					t.Errorf("%s, costs vary by %g %%, seed %d: %+.1f %% against AMP", name, 100*by, seed, 100*(auto/amp-1))
				}
			}
		}
	}
}

// TestAutoForgetsADroppedFrame: frames that end half-way, unseen, are not taken for
// parts of the frames behind them.
func TestAutoForgetsADroppedFrame(t *testing.T) {
	p := platforms["engine as fast as its source"]
	policy := pipeline.NewAuto(pipeline.FewTransfers)
	d := device(t, policy, 2)
	for i := range learned {
		for sent := 0; i%3 > 0 && sent < 4000; sent += 1000 {
			policy.Next(pipeline.View{Length: 8192, Sent: sent, Arrived: sent + 1000})
			policy.Observe(pipeline.Observation{Bytes: 1000, Elapsed: p.decision + p.setup + 1000*p.perByte, Decision: p.decision, Left: 7192 - sent})
		}
		p.frame(t, d, 8192)
	}
	end, _ := p.frame(t, d, 8192)
	if best := p.best(t, 8192); float64(end) > 1.002*float64(best) {
		t.Errorf("%d ps, best eager %d ps", end, best)
	}
}

// TestAutoAnswersWithinReason: whatever it is told, it moves no more than there is and
// all of a frame that has finished, and it keeps what it says about when its answer
// changes: there is a yes at the number of bytes that Wait names.
func TestAutoAnswersWithinReason(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := pipeline.NewAuto(rapid.SampledFrom([]pipeline.Preference{pipeline.FewTransfers, pipeline.EarlyBytes}).Draw(t, "prefer"))
		any64 := rapid.Int64Range(-1<<40, 1<<40)
		for range rapid.IntRange(0, 60).Draw(t, "frames") {
			length := rapid.SampledFrom([]int{1, 2, 100, 8192, pipeline.MaxFrame}).Draw(t, "length")
			sent := 0
			for sent < length {
				v := pipeline.View{Length: length, Sent: sent, Arrived: rapid.IntRange(sent, length).Draw(t, "arrived")}
				n := a.Next(v)
				if n < 0 || n > v.Available() || v.Finished() && n != v.Available() {
					t.Fatalf("%+v: %d bytes", v, n)
				}
				if n == 0 {
					v.Arrived = a.Wait(v)
					if n = a.Next(v); v.Arrived <= sent || v.Arrived > length || n == 0 {
						t.Fatalf("waits for %+v and moves %d bytes", v, n)
					}
				}
				sent += n
				a.Observe(pipeline.Observation{Bytes: n, Elapsed: any64.Draw(t, "elapsed"), Decision: any64.Draw(t, "decision"),
					Left: length - sent, Queued: rapid.IntRange(0, 2).Draw(t, "queued")})
			}
			a.ObserveArrival(length, any64.Draw(t, "arrival"))
			a.ObserveFrame(length, any64.Draw(t, "tail"))
		}
	})
}

func TestAutoAllocatesNothing(t *testing.T) {
	p := platforms["engine half as fast"]
	d := device(t, pipeline.NewAuto(pipeline.FewTransfers), 2)
	lengths := []int{1500, 8192, 8192, 40000}
	i := 0
	should.Be(t, testing.AllocsPerRun(300, func() {
		p.frame(t, d, lengths[i%len(lengths)])
		i++
	}), 0, "allocations for each frame")
}

// TestAutoUnderLoad: when frames leave others behind, Auto no longer cuts them; when
// that ends it does again.
func TestAutoUnderLoad(t *testing.T) {
	a := pipeline.NewAuto(pipeline.FewTransfers)
	teach := func(queued int) {
		a.ObserveArrival(8192, 8192*8000)
		a.Observe(pipeline.Observation{Bytes: 2000, Elapsed: 20_000_000, Decision: 900_000, Left: 6192, Queued: queued})
		a.Observe(pipeline.Observation{Bytes: 6192, Elapsed: 53_536_000, Decision: 900_000, Queued: queued})
	}
	half := pipeline.View{Length: 8192, Arrived: 4096}
	for range 4 {
		teach(0)
	}
	if a.Next(half) == 0 {
		t.Error("idle: half a frame does not go")
	}
	for range 4 {
		teach(3)
	}
	should.Be(t, a.Next(half), 0, "under load: bytes of half a frame go")
	teach(0)
	if a.Next(half) == 0 {
		t.Error("load has ended: half a frame does not go")
	}
}

// TestAutoSurvivesNonsense: observations that contradict each other neither stop it
// nor make it move more than there is.
func TestAutoSurvivesNonsense(t *testing.T) {
	a := pipeline.NewAuto(pipeline.EarlyBytes)
	for _, o := range []pipeline.Observation{{}, {Bytes: -5, Elapsed: 9}, {Bytes: 9, Elapsed: -9}, {Bytes: 1 << 40, Elapsed: 1}, {Bytes: 1, Elapsed: 1 << 62}, {Bytes: 100, Elapsed: 50, Decision: -1 << 60}} {
		a.Observe(o)
	}
	a.ObserveArrival(0, 0)
	a.ObserveArrival(-1, 5)
	a.ObserveArrival(1<<40, 1)
	for arrived := 1; arrived <= 1000; arrived++ {
		v := pipeline.View{Length: 1000, Arrived: arrived}
		if n := a.Next(v); n < 0 || n > arrived {
			t.Fatalf("%d of %d bytes", n, arrived)
		}
	}
	should.Be(t, a.Next(pipeline.View{Length: 10, Arrived: 10}), 10, "a finished frame: of 10 bytes")
}
