package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/measure"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// The NICs and the messages of demo --policies. Each message is one frame. The sender's bus is
// faster than the wire. The receiver's is as fast, and slower if a frame comes in parts, each of
// which has its set-up. So frames gather at both ends when there are many.
const (
	policiesBytes      = 8 << 10
	policiesBurst      = 512
	policiesRate       = 100_000_000 // bytes per second, of the wire
	policiesDelay      = 5 * time.Microsecond
	policiesSetup      = 2 * time.Microsecond // of each transfer
	policiesSendBus    = 200_000_000
	policiesReceiveBus = 100_000_000
	policiesIdle       = 60  // messages one by one
	policiesLoaded     = 200 // messages behind each other
	policiesSettle     = 2 * pipeline.AutoLearns
	policiesRuns       = 5  // of which the quietest is shown
	policiesMost       = 30 // runs, with those in which a frame went twice
)

// demonstrated is one of the policies that demo --policies runs.
type demonstrated struct {
	name   string // in table and picture
	file   string // of its logs
	policy via.Policy
	image  string // control program that decides, or none
	single bool   // the NICs have one buffer in each direction
}

// buffers is the number of frames that each NIC holds in each direction.
func (d *demonstrated) buffers() int {
	if d.single {
		return 1
	}
	return engine.DefaultBuffers
}

var demonstratedPolicies = []demonstrated{
	{name: "store-and-forward, one buffer", file: "store-and-forward-1", policy: via.Policy{Name: "store-and-forward"}, single: true},
	{name: "store-and-forward", file: "store-and-forward", policy: via.Policy{Name: "store-and-forward"}},
	{name: "cut-through, one buffer", file: "cut-through", policy: sizedPolicy("cut-through", via.AtNIC)},
	{name: "static", file: "static", policy: sizedPolicy("static", via.AtNIC)},
	{name: "eager, two buffers", file: "eager", policy: sizedPolicy("eager", via.AtNIC)},
	{name: "amp", file: "amp", policy: sizedPolicy("amp", via.AtNIC)},
	{name: "auto", file: "auto", policy: via.Policy{Name: "auto"}},
	{name: "amp, by the host's pulses", file: "amp-host", policy: sizedPolicy("amp", via.AtHost)},
	{name: "amp, a control program", file: "amp-program", policy: sizedPolicy("amp", via.AtNIC), image: "amp"},
}

// sizedPolicy is a policy whose threshold or pulse is one burst.
func sizedPolicy(name string, at driver.Placement) via.Policy {
	return via.Policy{Name: name, At: at, MinPulseSend: policiesBurst, MinPulseReceive: policiesBurst}
}

// policiesReport is the JSON object of demo --policies.
type policiesReport struct {
	Bytes      int          `json:"bytes" help:"of a message, which is one frame"`
	Burst      int          `json:"burst_bytes"`
	Rate       float64      `json:"wire_mb_per_s"`
	Delay      float64      `json:"wire_delay_us"`
	SendBus    float64      `json:"sender_bus_mb_per_s"`
	ReceiveBus float64      `json:"receiver_bus_mb_per_s"`
	Setup      float64      `json:"setup_us" help:"of each transfer"`
	Idle       []loadReport `json:"idle" help:"one message after the other"`
	Loaded     []loadReport `json:"loaded" help:"messages behind each other"`
	Picture    string       `json:"picture,omitempty" help:"with --output"`
	Logs       []string     `json:"logs,omitempty" help:"with --log-folder"`
}

// loadReport is one policy under one load.
type loadReport struct {
	Policy  string  `json:"policy"`
	At      string  `json:"at" help:"nic, host or program"`
	Latency float64 `json:"p50_us" help:"from posting a message until it is received"`
	Way     float64 `json:"way_us" help:"from hostTx's start with a frame to hostRcv's end, median"`
	Rate    float64 `json:"mb_per_s" help:"at which hostRcv ends frames, median"`
	transfersReport
	// Shares of successive frames.
	SenderOverlap   float64 `json:"sender_overlap" help:"of successive frames those of which hostTx begins the later before netTx has ended the earlier"`
	ReceiverOverlap float64 `json:"receiver_overlap" help:"of successive frames those of which netRcv begins the later before hostRcv has ended the earlier"`

	log dmalog.Log
}

// transfersReport counts the transfers of each engine for a frame.
type transfersReport struct {
	HostTx  float64 `json:"hostTx"`
	NetTx   float64 `json:"netTx"`
	NetRcv  float64 `json:"netRcv"`
	HostRcv float64 `json:"hostRcv"`
}

// policiesFlags are those of demo --policies.
type policiesFlags struct {
	On     bool   `flag:"policies" excludes:"channels,duration,input,policy,policy-at,minpulse-send,minpulse-recv,image,map,show-map" help:"show what delivery policies do, idle and loaded"`
	Output string `flag:"output" help:"with --policies: write a picture of packet flow graphs to this file, SVG"`
	Folder string `flag:"log-folder" help:"with --policies: write the DMA log of each run into this folder, made if it is missing, as POLICY-LOAD.log"`
}

// demoPolicies runs each policy on one wire, idle and loaded.
func (p *program) demoPolicies(ctx context.Context, f policiesFlags, force bool) (err error) {
	files := map[string]*outfile.File{}
	made := false // the folder of the logs
	defer func() {
		for _, file := range files {
			err = errors.Join(err, file.Discard())
		}
		if err != nil && made {
			_ = os.Remove(f.Folder) // it stays if others have written there
		}
	}()
	create := func(flag, path string) error {
		file, err := outfile.Create(path, 0o644, force)
		if err != nil {
			return outfile.Explain(flag, err)
		}
		files[path] = file
		return nil
	}
	if f.Output != "" {
		if err := create("--output", f.Output); err != nil {
			return err
		}
	}
	if f.Folder != "" {
		err := os.Mkdir(f.Folder, 0o755)
		made = err == nil
		if !made && !errors.Is(err, fs.ErrExist) {
			return outfile.Explain("--log-folder", err)
		}
		for _, d := range demonstratedPolicies {
			for _, load := range loads {
				if err := create("--log-folder", d.log(f.Folder, load)); err != nil {
					return err
				}
			}
		}
	}
	r := policiesReport{Bytes: policiesBytes, Burst: policiesBurst, Rate: policiesRate / 1e6, Delay: units.Microseconds(policiesDelay),
		SendBus: policiesSendBus / 1e6, ReceiveBus: policiesReceiveBus / 1e6, Setup: units.Microseconds(policiesSetup), Picture: f.Output}
	meter := p.Steps("policies", len(demonstratedPolicies))
	defer meter.Stop()
	for _, d := range demonstratedPolicies {
		idle, loaded, err := d.run(ctx)
		if err != nil {
			return fmt.Errorf("demo --policies, %s: %w", d.name, err)
		}
		r.Idle, r.Loaded = append(r.Idle, idle), append(r.Loaded, loaded)
		meter.Add(1)
	}
	meter.Stop()
	if f.Output != "" {
		svg, err := drawPolicies(&r)
		if err == nil {
			_, err = files[f.Output].Write(svg)
		}
		if err != nil {
			return outfile.Explain("--output", err)
		}
	}
	if f.Folder != "" {
		for i, d := range demonstratedPolicies {
			for k, load := range []*loadReport{&r.Idle[i], &r.Loaded[i]} {
				path := d.log(f.Folder, loads[k])
				if err := dmalog.Write(files[path], load.log); err != nil {
					return outfile.Explain("--log-folder", err)
				}
				r.Logs = append(r.Logs, path)
			}
		}
	}
	for _, file := range files {
		if err := file.Commit(); err != nil {
			return outfile.Explain("demo --policies", err)
		}
	}
	return p.Report(r)
}

// loads name the two loads, in logs' names.
var loads = [2]string{"idle", "loaded"}

// log is the name of a log of the policy.
func (d *demonstrated) log(folder, load string) string {
	return filepath.Join(folder, d.file+"-"+load+".log")
}

// run runs one policy on NICs of its own.
func (d *demonstrated) run(ctx context.Context) (idle, loaded loadReport, err error) {
	buses := []int64{policiesSendBus, policiesReceiveBus}
	a, b, err := peer.OpenPair(ctx, via.Options{Policy: d.policy}, emulator.PairOptions{
		Shape: wire.ShaperOptions{Path: speed.Path{Rate: policiesRate}, Delay: policiesDelay},
		Pipeline: func() engine.Pipeline {
			bus := buses[0]
			buses = buses[1:]
			return engine.Pipeline{Burst: policiesBurst, Bus: bus, Setup: policiesSetup, Buffers: d.buffers()}
		},
	})
	if err != nil {
		return idle, loaded, err
	}
	defer closing(a, &err)
	defer closing(b, &err)
	program, err := (&fwcmd.ProgramFlags{Image: d.image}).Open()
	if err != nil {
		return idle, loaded, err
	}
	if err := program.Load(ctx, a.NIC, b.NIC); err != nil {
		return idle, loaded, err
	}
	log := &recorder{setup: dmalog.Setup{Burst: policiesBurst, Buffers: d.buffers(), Rate: policiesRate, Delay: units.Microseconds(policiesDelay)}, program: program}
	x, y, err := connected(ctx, a, b, "trapeze-demo/policies", via.ConnOptions{Reliability: via.ReliableDelivery, MaxMessage: policiesBytes,
		SendDepth: demoDepth, RecvDepth: demoDepth})
	if err != nil {
		return idle, loaded, err
	}
	defer func() { err = errors.Join(err, x.Close(), y.Close()) }()
	if err := oneByOne(ctx, x, y, policiesSettle, nil); err != nil { // policies that learn have learned
		return idle, loaded, err
	}
	if idle, err = d.measure(ctx, log, a, b, policiesIdle, func(took []time.Duration) error { return oneByOne(ctx, x, y, policiesIdle, took) }); err != nil {
		return idle, loaded, err
	}
	loaded, err = d.measure(ctx, log, a, b, policiesLoaded, func(took []time.Duration) error {
		all, err := measure.BurstTimes(ctx, x, y, policiesBytes, policiesLoaded)
		copy(took, all)
		return err
	})
	return idle, loaded, err
}

// oneByOne sends messages of which each has come before the next goes.
func oneByOne(ctx context.Context, x, y *via.Conn, count int, took []time.Duration) error {
	for i := range count {
		one, err := measure.BurstTimes(ctx, x, y, policiesBytes, 1)
		if err != nil {
			return err
		}
		if took != nil {
			took[i] = one[0]
		}
		for end := time.Now().Add(policiesDelay); time.Now().Before(end); { // acknowledgements
			x.Poll()
			y.Poll()
		}
	}
	return nil
}

// measure measures messages while their transfers are logged, some times. It returns the quietest
// time: other programs on the machine only slow the NICs down. One in which a frame went twice
// counts only if there is no other.
func (d *demonstrated) measure(ctx context.Context, log *recorder, a, b *via.NIC, count int, send func(took []time.Duration) error) (r loadReport, err error) {
	took := make([]time.Duration, count)
	whole := 0
	for try := 0; try < policiesMost && whole < policiesRuns; try++ {
		if err := log.watch(false, a, b); err != nil {
			return r, err
		}
		if err := send(took); err != nil {
			return r, err
		}
		if err := log.read(); err != nil {
			return r, err
		}
		switch sound := once(log.records, count*policiesBytes); {
		case !sound && whole > 0:
			continue
		case sound:
			whole++
		}
		rate := rateOf(log.records)
		if whole > 1 && rate <= r.Rate {
			continue
		}
		slices.Sort(took)
		r = loadReport{Policy: d.name, At: log.setup.At, Rate: rate, Latency: units.Microseconds(took[count/2]), log: log.log()}
		ways := ways(log.records)
		r.Way = dmalog.Microseconds(ways[len(ways)/2].way)
		r.SenderOverlap, r.ReceiverOverlap = dmalog.Overlaps(log.records)
		counts := [dmalog.Engines]float64{}
		for _, t := range log.records {
			if !t.Control {
				counts[t.Engine] += 1 / float64(count)
			}
		}
		r.transfersReport = transfersReport{counts[dmalog.HostTx], counts[dmalog.NetTx], counts[dmalog.NetRcv], counts[dmalog.HostRcv]}
	}
	return r, ctx.Err()
}

// once reports whether every engine has moved just so many bytes, and something of each frame. Then
// no frame was sent again, or begun again and dropped since it had arrived. So packets have the same
// numbers at both ends.
func once(records []dmalog.Record, bytes int) bool {
	var moved, last [dmalog.Engines]int
	var seen [dmalog.Engines]map[int]bool
	for _, r := range records {
		if seen[r.Engine] == nil {
			seen[r.Engine] = map[int]bool{}
		}
		seen[r.Engine][r.Packet] = true
		moved[r.Engine] += r.Bytes
		last[r.Engine] = max(last[r.Engine], r.Packet)
	}
	for e, n := range moved {
		if n != bytes || len(seen[e]) != last[e]+1 {
			return false
		}
	}
	return true
}

// frameWay is the time of a frame on its way through all engines.
type frameWay struct {
	packet     int
	start, way int64 // picoseconds
}

// ways returns the ways of all frames, shortest first.
func ways(records []dmalog.Record) []frameWay {
	by := map[int]*frameWay{}
	for _, r := range records {
		f := by[r.Packet]
		if f == nil {
			f = &frameWay{packet: r.Packet, start: r.Start}
			by[r.Packet] = f
		}
		f.start, f.way = min(f.start, r.Start), max(f.way, r.End)
	}
	var all []frameWay
	for _, f := range by {
		all = append(all, frameWay{f.packet, f.start, f.way - f.start})
	}
	slices.SortFunc(all, func(a, b frameWay) int { return cmp.Or(cmp.Compare(a.way, b.way), cmp.Compare(a.packet, b.packet)) })
	return all
}

// rateFrames is over how many frames a rate is taken.
const rateFrames = 8

// rateOf is the median rate at which frames leave hostRcv, in MB/s: what a busy machine adds to a
// few of them does not count.
func rateOf(records []dmalog.Record) float64 {
	ends := map[int]int64{}
	for _, r := range records {
		if r.Engine == dmalog.HostRcv {
			ends[r.Packet] = max(ends[r.Packet], r.End)
		}
	}
	all := slices.Sorted(maps.Values(ends))
	var spans []int64
	for i := rateFrames; i < len(all); i++ {
		spans = append(spans, all[i]-all[i-rateFrames])
	}
	slices.Sort(spans)
	return rateFrames * policiesBytes / dmalog.Microseconds(spans[len(spans)/2])
}
