// Package report measures policies in virtual time and draws the pictures of the
// papers' evaluation sections from the figures.
package report

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Learning is the number of frames that "auto" sees before it is measured.
const Learning = pipeline.AutoLearns

// Case holds what is measured.
type Case struct {
	Profile         *profile.Profile
	Policy          string
	MinPulseSend    int // bytes, 0 = the policy's default
	MinPulseReceive int
	Payload         int // bytes
	Count           int // frames of the stream
	Gap             profile.Time
	Random          bool
	Seed            uint64
	Bidirectional   bool
	Warmup          int // frames before; -1 = Learning for "auto", none for others
	Log             bool
	LogCosts        bool // the firmware keeps the papers' DMA log
}

// Figures hold what was measured.
type Figures struct {
	Latency   profile.Time // one way, a lone frame on an idle system
	Bandwidth float64      // MB/s of the stream
	Busy      profile.Time // both hosts' buses during the stream
	Log       []dmalog.Record
	Control   []dmalog.Record // the control messages ahead of payloads
	Mean      profile.Time    // latency of the stream's frames, mean
}

// Plan returns the policy of a case.
func (c *Case) Plan(ctx context.Context) (pipeline.Plan, error) {
	if err := c.check(); err != nil {
		return pipeline.Plan{}, err
	}
	if c.Policy == "optimal" {
		r, err := search.Optimal(ctx, c.Profile, c.Payload)
		if err != nil {
			return pipeline.Plan{}, err
		}
		return r.Plan()
	}
	p := pipeline.Parameters{MinPulseSend: c.MinPulseSend, MinPulseReceive: c.MinPulseReceive}
	return pipeline.ByName(c.Policy, p)
}

// check refuses thresholds above the frame.
func (c *Case) check() error {
	if c.Payload < 1 || c.Payload > pipeline.MaxFrame {
		return &option.Error{Option: "--payload", Value: fmt.Sprint(c.Payload), Allowed: fmt.Sprintf("1 to %d bytes", pipeline.MaxFrame)}
	}
	for _, side := range []struct {
		option string
		value  int
	}{{"--minpulse-send", c.MinPulseSend}, {"--minpulse-recv", c.MinPulseReceive}} {
		if side.value < 0 || side.value > c.Payload {
			return &option.Error{Option: side.option, Value: fmt.Sprint(side.value), Allowed: fmt.Sprintf("1 to %d bytes, the payload", c.Payload)}
		}
	}
	return nil
}

// Measure runs a lone frame and a stream.
func (c Case) Measure(ctx context.Context) (*Figures, error) {
	plan, err := c.Plan(ctx)
	if err != nil {
		return nil, err
	}
	o := c.lone(plan)
	lone, err := virtual.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	o.Count, o.Gap, o.Random, o.Bidirectional, o.Log = c.Count, c.Gap, c.Random, c.Bidirectional, c.Log
	stream, err := virtual.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	f := &Figures{Latency: lone.Latency, Bandwidth: stream.Bandwidth, Busy: stream.Busy[0] + stream.Busy[1], Log: stream.Log, Control: stream.Control}
	for _, d := range stream.Delivered {
		f.Mean += d
	}
	f.Mean /= profile.Time(len(stream.Delivered))
	return f, nil
}

// lone are the options of a run with one frame.
func (c *Case) lone(plan pipeline.Plan) virtual.Options {
	o := virtual.Options{Profile: c.Profile, Plan: plan, Payload: c.Payload, Count: 1, Warmup: c.Warmup, Seed: c.Seed, LogCosts: c.LogCosts}
	if o.Warmup < 0 {
		o.Warmup = 0
		if c.Policy == "auto" {
			o.Warmup = Learning
		}
	}
	return o
}

// Fetch is one page that a host asks for: a control message there, the page back.
type Fetch struct {
	Whole   profile.Time    `json:"fetch_us"`   // from asking until the page is there
	Request profile.Time    `json:"request_us"` // one way
	Page    profile.Time    `json:"page_us"`    // one way
	Log     []dmalog.Record `json:"-"`
	Control []dmalog.Record `json:"-"` // the control message ahead of the page
}

// Fetch runs a lone fetch of Payload bytes, from a server that takes server for it. Pages
// go from the profile's sender to its receiver.
func (c Case) Fetch(ctx context.Context, server profile.Time) (*Fetch, error) {
	plan, err := c.Plan(ctx)
	if err != nil {
		return nil, err
	}
	o := c.lone(plan)
	o.Fetch, o.Server, o.Log = true, server, true
	r, err := virtual.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Fetch{Whole: r.Fetched, Request: r.Request, Page: r.Latency, Log: r.Log, Control: r.Control}, nil
}
