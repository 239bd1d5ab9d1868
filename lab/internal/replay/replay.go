package replay

import (
	"context"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Flow is one direction of a log beside the model's.
type Flow struct {
	Number   int
	Frames   int              // that were replayed
	Left     int              // that were not, as they did not go through all engines of the log.
	Platform *profile.Profile // that the model ran on
	Engines  []Engine         // those of the log
}

// Engine is one engine of a flow. Times of frames are from when the NIC knew of them.
type Engine struct {
	Flow      int          `json:"flow" help:"0, or 1 for the other direction"`
	Engine    string       `json:"engine"`
	Frames    int          `json:"frames"`
	Alike     int          `json:"frames_alike" help:"those that both cut into the same sizes"`
	Live      Side         `json:"live"`
	Model     Side         `json:"model"`
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
func Run(ctx context.Context, log dmalog.Log, platform *profile.Profile) ([]Flow, error) {
	if log.Setup == nil {
		return nil, ErrNoSetup
	}
	flows, err := flowsOf(log.Records)
	if err != nil {
		return nil, err
	}
	results := make([]Flow, len(flows))
	for i := range flows {
		if results[i], err = flows[i].replay(ctx, log.Setup, platform); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (f *flow) replay(ctx context.Context, setup *dmalog.Setup, platform *profile.Profile) (Flow, error) {
	plan, err := planOf(setup)
	if err != nil {
		return Flow{}, err
	}
	o := virtual.Options{Profile: platform, Plan: plan, Frames: f.arrivals(), Burst: setup.Burst, Live: true, Log: true}
	if platform == nil {
		o.Profile = f.platform()
	}
	if setup.Send.Policy == "auto" || setup.Receive.Policy == "auto" {
		o.Warmup = pipeline.AutoLearns
	}
	if !f.has(dmalog.HostTx) {
		o.Burst = 0 // nothing says how the frame got to the sender's NIC
	}
	run, err := virtual.Run(ctx, o)
	if err != nil {
		return Flow{}, err
	}
	model, err := flowOf(inOrder(run.Log))
	if err != nil {
		return Flow{}, err
	}
	result := Flow{Number: f.number, Frames: len(f.frames), Left: f.left, Platform: o.Profile}
	costs := [dmalog.Engines]profile.Cost{o.Profile.Sender.Read, o.Profile.Link.Pulse, o.Profile.Link.Pulse, o.Profile.Receiver.Write}
	for _, e := range f.engines {
		c := compare(e, f, &model)
		c.Overhead, c.Bandwidth = costs[e].Overhead, costs[e].Bandwidth()
		result.Engines = append(result.Engines, c)
	}
	return result, nil
}

// inOrder sorts the records of one direction by packet.
func inOrder(records []dmalog.Record) []dmalog.Record {
	slices.SortStableFunc(records, func(a, b dmalog.Record) int { return a.Packet - b.Packet })
	return records
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
	if setup.At != dmalog.AtNIC {
		send.Buffers = 0 // the host and programs decide about the frame that there is
	}
	return send, nil
}

// compare holds what a live engine did against what the model's did with the same frames.
func compare(e dmalog.Engine, live, model *flow) Engine {
	c := Engine{Flow: live.number, Engine: e.String(), Frames: len(live.frames)}
	var there, here sums
	for k := range live.frames {
		a, b := live.frames[k].transfers[e], model.frames[k].transfers[e]
		if slices.EqualFunc(a, b, func(a, b dmalog.Record) bool { return a.Bytes == b.Bytes }) {
			c.Alike++
		}
		posted := live.frames[k].posted
		by := here.add(b, posted-live.frames[0].posted) - there.add(a, posted)
		if k == 0 || max(by, -by) > max(c.WorstBy, -c.WorstBy) {
			c.Worst, c.WorstBy = k, by
		}
	}
	c.Live, c.Model = there.side(), here.side()
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
