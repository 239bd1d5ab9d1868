package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Engine is one engine of a flow. Times of frames are from when the NIC knew of them.
type Engine struct {
	Flow      int          `json:"flow" help:"0, or 1 for the other direction"`
	Engine    string       `json:"engine"`
	Frames    int          `json:"frames" help:"that were replayed"`
	LeftOut   int          `json:"frames_left_out" help:"that did not go through all engines of the log"`
	Alike     int          `json:"frames_alike" help:"those that both cut into the same sizes"`
	Share     float64      `json:"alike_percent"`
	Live      Side         `json:"live" text:"flat"`
	Model     Side         `json:"model" text:"flat"`
	Platform  string       `json:"platform" help:"whose costs the model had"`
	Disorder  int          `json:"transfers_out_of_order" help:"live transfers that began after one of any engine which the model begins later, by more than a microsecond"`
	Worst     int          `json:"worst_packet" help:"whose end on this engine differs most"`
	WorstBy   profile.Time `json:"worst_us" help:"model less live"`
	Overhead  profile.Time `json:"overhead_us" help:"that the model took for a transfer"`
	Bandwidth float64      `json:"bandwidth_mb_s" help:"likewise"`
}

// Side has the transfers of all frames at the live NIC, or in the model.
type Side struct {
	Transfers int          `json:"transfers"`
	Bytes     int          `json:"median_bytes" help:"of a transfer"`
	Took      profile.Time `json:"median_us" help:"of a transfer"`
	Left      profile.Time `json:"median_left_us" help:"from when the NIC knew of a frame until it has left the engine"`
}

// Run replays a log. On a platform that is not nil the model has its costs, and else those of the
// log. Errors wrap ErrNoSetup, ErrNoFrames or ErrTransfer, are *pipeline.ParameterError or
// *option.Error, or the cause of the end of ctx.
func Run(ctx context.Context, log dmalog.Log, platform *profile.Profile) (engines []Engine, err error) {
	if log.Setup == nil {
		return nil, ErrNoSetup
	}
	flows, err := flowsOf(log.Records)
	if err != nil {
		return nil, err
	}
	for i := range flows {
		more, err := flows[i].replay(ctx, log.Setup, platform)
		if err != nil {
			return nil, err
		}
		engines = append(engines, more...)
	}
	return engines, nil
}

func (f *flow) replay(ctx context.Context, setup *dmalog.Setup, platform *profile.Profile) (engines []Engine, err error) {
	plan, err := planOf(setup)
	if err != nil {
		return nil, err
	}
	o := virtual.Options{Profile: platform, Plan: plan, Burst: setup.Burst, Log: true}
	for _, one := range f.frames {
		o.Frames = append(o.Frames, virtual.Frame{Posted: one.posted - f.frames[0].posted, Bytes: one.bytes})
	}
	if platform == nil {
		o.Profile = f.platform(setup)
	}
	if setup.Send.Policy == "auto" || setup.Receive.Policy == "auto" {
		o.Warmup = pipeline.AutoLearns
	}
	if !f.has(dmalog.HostTx) {
		o.Burst = 0 // nothing says how the frame got to the sender's NIC
	}
	run, err := virtual.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	live := run.AsLive()
	slices.SortStableFunc(live, func(a, b dmalog.Record) int { return a.Packet - b.Packet })
	model, err := flowOf(live)
	if err != nil {
		return nil, err
	}
	costs := [dmalog.Engines]profile.Cost{o.Profile.Sender.Read, o.Profile.Link.Pulse, o.Profile.Link.Pulse, o.Profile.Receiver.Write}
	for _, e := range f.engines {
		c := compare(e, f, &model)
		c.Overhead, c.Bandwidth = costs[e].Overhead, costs[e].Bandwidth()
		c.Platform = o.Profile.Name
		engines = append(engines, c)
	}
	for i, n := range disorder(f, &model) {
		engines[i].Disorder = n
	}
	return engines, nil
}

// together is the time within which transfers of two engines may begin in either order.
const together = profile.Time(1e6)

// disorder counts, for each engine of the log, the live transfers that began after one which the model begins later. Frames
// that the two cut differently do not count.
func disorder(live, model *flow) []int {
	type pair struct {
		engine      int
		live, model profile.Time
	}
	var all []pair
	for i, e := range live.engines {
		for k := range live.frames {
			a, b := live.frames[k].transfers[e], model.frames[k].transfers[e]
			if !alike(a, b) {
				continue
			}
			for n := range a {
				all = append(all, pair{i, profile.Time(a[n].Start), profile.Time(b[n].Start)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b pair) int { return cmp.Compare(a.live, b.live) })
	counts, latest := make([]int, len(live.engines)), profile.Time(0)
	for _, p := range all {
		if p.model+together < latest {
			counts[p.engine]++
		}
		latest = max(latest, p.model)
	}
	return counts
}

// alike reports whether two cut a frame into the same sizes.
func alike(a, b []dmalog.Record) bool {
	return slices.EqualFunc(a, b, func(a, b dmalog.Record) bool { return a.Bytes == b.Bytes })
}

// planOf makes the policies of a log: the sender's of one direction and the receiver's of the other.
func planOf(setup *dmalog.Setup) (pipeline.Plan, error) {
	parameters := pipeline.Parameters{MinPulseSend: setup.Send.MinPulse, MinPulseReceive: setup.Receive.MinPulse}
	send, err := pipeline.ByName(setup.Send.Policy, parameters)
	if err != nil {
		return send, fmt.Errorf("send.policy: %w", err)
	}
	receive, err := pipeline.ByName(setup.Receive.Policy, parameters)
	if err != nil {
		return receive, fmt.Errorf("receive.policy: %w", err)
	}
	send.Receive = receive.Receive
	if setup.At != dmalog.AtNIC || send.Buffers == 0 || send.Buffers > setup.Buffers {
		send.Buffers = setup.Buffers // the host and programs decide about all frames in the NIC
	}
	return send, nil
}

// compare holds what a live engine did against what the model's did with the same frames.
func compare(e dmalog.Engine, live, model *flow) Engine {
	c := Engine{Flow: live.number, Engine: e.String(), Frames: len(live.frames), LeftOut: live.left}
	var there, here sums
	for k := range live.frames {
		a, b := live.frames[k].transfers[e], model.frames[k].transfers[e]
		if alike(a, b) {
			c.Alike++
		}
		posted := live.frames[k].posted
		by := here.add(b, posted-live.frames[0].posted) - there.add(a, posted)
		if k == 0 || max(by, -by) > max(c.WorstBy, -c.WorstBy) {
			c.Worst, c.WorstBy = k, by
		}
	}
	c.Live, c.Model, c.Share = there.side(), here.side(), 100*float64(c.Alike)/float64(c.Frames)
	return c
}

// sums has the transfers of one side, frame by frame.
type sums struct {
	bytes      []int
	took, left []profile.Time
}

// add adds the transfers of a frame that was posted at a time, and returns when it has left.
func (s *sums) add(transfers []dmalog.Record, posted profile.Time) profile.Time {
	for _, r := range transfers {
		s.bytes, s.took = append(s.bytes, r.Bytes), append(s.took, profile.Time(r.End-r.Start))
	}
	left := profile.Time(transfers[len(transfers)-1].End) - posted
	s.left = append(s.left, left)
	return left
}

func (s *sums) side() Side {
	return Side{len(s.bytes), median(s.bytes), median(s.took), median(s.left)}
}
