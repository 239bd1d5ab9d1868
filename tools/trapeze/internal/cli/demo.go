package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/measure"
	"github.com/trapeze-nic/trapeze/via"
)

// demoReport is the JSON output of demo.
type demoReport struct {
	File      demoFile         `json:"file"`
	Reverse   demoFile         `json:"reverse"`
	Latency   []demoLatency    `json:"latency"`
	Bandwidth []demoBandwidth  `json:"bandwidth"`
	Policy    telemetry.Policy `json:"policy"`
	Program   *programReport   `json:"program,omitempty" help:"with --image"`
}

type demoFile struct {
	Bytes    uint64  `json:"bytes"`
	Sent     string  `json:"sha256_sent"`
	Received string  `json:"sha256_received"`
	Rate     float64 `json:"mb_per_s"`
}

type demoLatency struct {
	Bytes int     `json:"bytes"`
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
	P999  float64 `json:"p999_us"`
}

type demoBandwidth struct {
	Bytes int     `json:"bytes"`
	Rate  float64 `json:"mb_per_s"`
}

// What is measured.
var (
	latencySizes   = []int{64, 4 << 10, 8 << 10, 64 << 10}
	bandwidthSizes = []int{8 << 10, 64 << 10}
)

// demoDepth buffers of the largest message stay within the caches of an ordinary
// server.
const demoDepth = 16

type demoFlags struct {
	Input    string        `flag:"input" help:"file to send (default this program itself)"`
	Channels bool          `flag:"channels" help:"show channels: urgent cells beside bulk"`
	Duration time.Duration `flag:"duration" default:"800ms" range:"1ms..1m" help:"how long to measure each latency and bandwidth, from 1ms to 1m"`
	Policy   policyFlags
	Image    fwcmd.ProgramFlags
	Policies policiesFlags
	cmdtable.Force
}

func (p *program) demo(ctx context.Context, f *demoFlags, _ []string) (err error) {
	switch {
	case f.Policies.On:
		return p.demoPolicies(ctx, f.Policies, f.Force.Force)
	case f.Policies.Output != "":
		return option.Errorf("--output is about --policies, which is not there")
	case f.Policies.Folder != "":
		return option.Errorf("--log-folder is about --policies, which is not there")
	}
	if f.Channels {
		return p.demoChannels(ctx, f.Duration)
	}
	opts, err := f.Policy.options()
	if err != nil {
		return err
	}
	program, err := chooseProgram(&f.Image, &f.Policy)
	if err != nil {
		return err
	}
	input := f.Input
	if input == "" {
		if input, err = os.Executable(); err != nil {
			return shell.Hinted(err, "choose a file with --input")
		}
	}
	if st, err := os.Stat(input); err != nil {
		return err
	} else if !st.Mode().IsRegular() {
		return &fs.PathError{Op: "demo", Path: input, Err: errors.New("it is not a regular file")}
	}
	a, b, err := openPair(ctx, opts)
	if err != nil {
		return err
	}
	defer closing(a, &err)
	defer closing(b, &err)
	if err := program.Load(ctx, a.NIC, b.NIC); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	var r demoReport
	if r.File, err = p.demoFile(ctx, a, b, input, "file, a to b"); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if r.Reverse, err = p.demoFile(ctx, b, a, input, "file, b to a"); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := p.demoMeasure(ctx, a, b, f.Duration, &r); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	state, err := a.Report(ctx)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	r.Policy = state.DMA.Policy
	if r.Program, err = reportProgram(program, a, b); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return p.Report(r)
}

// connected makes a connection between two NICs of this process.
func connected(ctx context.Context, a, b *via.NIC, discriminator string, o via.ConnOptions) (from, to *via.Conn, err error) {
	const timeout = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l, err := via.Listen(b, discriminator, via.ListenOptions{Limit: 1, Conn: func(via.Remote) (via.ConnOptions, error) { return o, nil }})
	if err != nil {
		return nil, nil, err
	}
	if from, err = dial(ctx, a, l.Address(), o, timeout); err == nil {
		to, err = l.Accept(ctx)
	}
	if err = errors.Join(err, l.Close()); err != nil && from != nil {
		err = errors.Join(err, from.Close())
	}
	return from, to, err
}

// demoFile sends a file from one NIC to the other.
func (p *program) demoFile(ctx context.Context, from, to *via.NIC, path, what string) (r demoFile, err error) {
	src, file, err := p.openSource(path, "demo")
	if err != nil {
		return r, err
	}
	defer file.Close()
	x, y, err := connected(ctx, from, to, fileDiscriminator, fileOptions(min(chunk, int(from.Query().MaxTransfer))))
	if err != nil {
		return r, err
	}
	sender, err := x.Stream()
	receiver, rerr := y.Stream()
	if err := errors.Join(err, rerr); err != nil {
		return r, errors.Join(err, x.Close(), y.Close())
	}
	type received struct {
		transfer.Result
		err error
	}
	done := make(chan received, 1)
	go func() {
		res, err := transfer.Receive(ctx, receiver, func(transfer.Offer) (transfer.Sink, error) { return stream{io.Discard}, nil }, nil)
		done <- received{res, errors.Join(err, receiver.Close())}
	}()
	meter := p.Meter(what, src.Size)
	sent, err := transfer.Send(ctx, sender, src, meter.Add)
	meter.Stop()
	err = errors.Join(err, sender.Close())
	got := <-done
	if err := errors.Join(err, got.err); err != nil {
		return r, err
	}
	r = demoFile{Bytes: got.Bytes, Sent: sent.SHA256, Received: got.SHA256, Rate: sent.Rate}
	if r.Sent != r.Received {
		return r, fmt.Errorf("%s: %w: %s instead of %s", what, transfer.ErrDigest, r.Received, r.Sent)
	}
	return r, nil
}

// demoMeasure fills in the measurements, which take d each.
func (p *program) demoMeasure(ctx context.Context, a, b *via.NIC, d time.Duration, r *demoReport) (err error) {
	largest := max(latencySizes[len(latencySizes)-1], bandwidthSizes[len(bandwidthSizes)-1])
	o := via.ConnOptions{Reliability: via.ReliableDelivery, MaxMessage: largest, SendDepth: demoDepth, RecvDepth: demoDepth}
	x, y, err := connected(ctx, a, b, "trapeze-demo/1", o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close(), y.Close()) }()
	meter := p.Steps("measuring", len(latencySizes)+len(bandwidthSizes))
	defer meter.Stop()
	for _, n := range latencySizes {
		h, err := measure.Latency(ctx, x, y, n, d)
		if err != nil {
			return err
		}
		us := func(percent float64) float64 { return float64(h.ValueAtPercentile(percent)) / 1e3 }
		r.Latency = append(r.Latency, demoLatency{Bytes: n, P50: us(50), P99: us(99), P999: us(99.9)})
		meter.Add(1)
	}
	for _, n := range bandwidthSizes {
		bytes, took, err := measure.Bandwidth(ctx, x, y, n, d)
		if err != nil {
			return err
		}
		r.Bandwidth = append(r.Bandwidth, demoBandwidth{Bytes: n, Rate: float64(bytes) / 1e6 / took.Seconds()})
		meter.Add(1)
	}
	return nil
}
