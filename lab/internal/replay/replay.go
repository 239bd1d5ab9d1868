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

// Pair is a figure of the live NIC and of the model.
type Pair[T any] struct{ Live, Model T }

// Engine is one engine of a flow. Times of frames are from when the NIC knew of them.
type Engine struct {
	Engine    dmalog.Engine
	Transfers Pair[int]          // of all frames
	Alike     int                // frames that both cut into the same sizes.
	Bytes     Pair[int]          // of a transfer, median.
	Took      Pair[profile.Time] // by a transfer, median
	Left      Pair[profile.Time] // when a frame has left the engine, median.
	Worst     int                // the frame whose end differs most
	WorstBy   profile.Time       // model less live
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
	for _, e := range f.engines {
		result.Engines = append(result.Engines, compare(e, f, &model))
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
	c := Engine{Engine: e}
	var bytes, took, left Pair[[]int64]
	for k := range live.frames {
		a, b := live.frames[k].transfers[e], model.frames[k].transfers[e]
		c.Transfers.Live += len(a)
		c.Transfers.Model += len(b)
		if slices.EqualFunc(a, b, func(a, b dmalog.Record) bool { return a.Bytes == b.Bytes }) {
			c.Alike++
		}
		bytes.Live, took.Live = collect(bytes.Live, took.Live, a)
		bytes.Model, took.Model = collect(bytes.Model, took.Model, b)
		posted := live.frames[k].posted
		ends := Pair[int64]{a[len(a)-1].End - int64(posted), b[len(b)-1].End - int64(posted-live.frames[0].posted)}
		left.Live, left.Model = append(left.Live, ends.Live), append(left.Model, ends.Model)
		if by := profile.Time(ends.Model - ends.Live); k == 0 || max(by, -by) > max(c.WorstBy, -c.WorstBy) {
			c.Worst, c.WorstBy = k, by
		}
	}
	c.Bytes = Pair[int]{int(median(bytes.Live)), int(median(bytes.Model))}
	c.Took = Pair[profile.Time]{profile.Time(median(took.Live)), profile.Time(median(took.Model))}
	c.Left = Pair[profile.Time]{profile.Time(median(left.Live)), profile.Time(median(left.Model))}
	return c
}

// collect adds the sizes and times of transfers.
func collect(bytes, took []int64, transfers []dmalog.Record) ([]int64, []int64) {
	for _, r := range transfers {
		bytes, took = append(bytes, int64(r.Bytes)), append(took, r.End-r.Start)
	}
	return bytes, took
}
