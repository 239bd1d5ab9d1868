// Package report measures policies in virtual time and draws the pictures of the
// papers' evaluation sections from the figures.
package report

import (
	"context"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/plot"
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
	LogCosts        bool    // the firmware keeps the papers' DMA log
	BlockCopy       float64 // share of the bus that a copy takes from the first hostTx

	Server profile.Time  // of a fetch: between request and page
	Trunk  virtual.Trunk // of OnTrunk and Trunks
	Window profile.Time  // of Rates
	Others []int         // of Thresholds: those of the other side

	Recorded []dmalog.Record // a live device's log, to draw instead of a run
	Source   string          // what a picture says of it; empty = there is none
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
	return search.Plan(ctx, c.Profile, c.Policy, c.Payload, pipeline.Parameters{MinPulseSend: c.MinPulseSend, MinPulseReceive: c.MinPulseReceive})
}

// meter measures cases until one fails: that error stays, and all figures are zero from then on.
type meter struct {
	ctx context.Context
	err error
}

func (m *meter) measure(c Case) *Figures {
	if m.err == nil {
		f, err := c.Measure(m.ctx)
		if err == nil {
			return f
		}
		m.err = err
	}
	return &Figures{}
}

// draw draws a picture of what was measured.
func (m *meter) draw(ch plot.Chart) ([]byte, error) {
	if m.err != nil {
		return nil, m.err
	}
	return ch.SVG()
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

func (c *Case) lone(plan pipeline.Plan) virtual.Options {
	o := virtual.Options{Profile: c.Profile, Plan: plan, Payload: c.Payload, Count: 1, Warmup: c.Warmup, Seed: c.Seed, LogCosts: c.LogCosts}
	if o.Warmup < 0 {
		o.Warmup = 0
		if c.Policy == "auto" {
			o.Warmup = Learning
		}
	}
	if c.BlockCopy > 0 {
		o.Changes = virtual.BesideCopy(o.Warmup, c.BlockCopy)
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

// Fetch runs a lone fetch of Payload bytes. Pages go from the profile's sender to its receiver.
func (c Case) Fetch(ctx context.Context) (*Fetch, error) {
	plan, err := c.Plan(ctx)
	if err != nil {
		return nil, err
	}
	o := c.lone(plan)
	o.Log = true
	r, err := virtual.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	f := &Fetch{Page: r.Latency, Log: r.Log, Control: r.Control}
	request, asked := o.Request()
	posted := request + c.Server
	f.Request, f.Whole = request, posted+r.Latency
	for _, records := range [][]dmalog.Record{f.Log, f.Control} {
		for i := range records {
			records[i].Start += int64(posted)
			records[i].End += int64(posted)
		}
	}
	for _, one := range asked {
		one.Flow = 1
		f.Log = append(f.Log, one)
	}
	return f, nil
}
