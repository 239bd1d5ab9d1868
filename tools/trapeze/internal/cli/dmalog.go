package cli

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// maxLogged is the most transfers that a log holds: about what one picture can show
// (20,000). A NIC that has logged its share of them logs no more.
const maxLogged = 16384

// logFlag is --dma-log.
type logFlag struct {
	Path string `flag:"dma-log" help:"write the NIC's DMA transfers to this file, for 'trapeze-lab plot flow --log FILE'"`
	cmdtable.Force
}

// logReport describes the log at its end, in JSON.
type logReport struct {
	File      string `json:"file"`
	Transfers int    `json:"transfers"`
	// Dropped counts those that came when the log was full.
	Dropped uint64 `json:"dropped"`
}

// recorder takes the logs of NICs and writes them to one file. A nil recorder,
// for a command without --dma-log, does nothing.
type recorder struct {
	path    string
	file    *outfile.File
	ends    []recorded
	setup   dmalog.Setup    // but for the policy, which read finds out
	program *fwcmd.Chosen   // that decides, or nil
	records []dmalog.Record // nil until they are read
	dropped uint64
}

// recorded is a NIC whose log is kept.
type recorded struct {
	nic *via.NIC
	// sends is the direction, 0 or 1, in which the NIC sends; in the other it
	// receives.
	sends int
}

// open starts the file, so that one that cannot be written is refused before
// anything else is done.
func (f *logFlag) open() (*recorder, error) {
	if f.Path == "" {
		return nil, nil
	}
	file, err := outfile.Create(f.Path, 0o644, f.Force.Force)
	if err != nil {
		return nil, outfile.Explain("--dma-log", err)
	}
	return &recorder{path: f.Path, file: file}, nil
}

// watchAt is watch for the NIC that was opened at an address, whose options say what speed it has.
func (r *recorder) watchAt(address string, receives bool, nic *via.NIC) error {
	if r == nil {
		return nil
	}
	a, err := vfio.ParseAddress(address)
	if err != nil {
		return err
	}
	// Of another device than an emulated one these say nothing, and of that they are right.
	r.setup.Burst, _ = strconv.Atoi(a.Options.Get("burst"))
	r.setup.Buffers, _ = strconv.Atoi(a.Options.Get("buffers"))
	var rate speed.Rate
	_ = rate.Set(a.Options.Get("rate"))
	delay, _ := time.ParseDuration(a.Options.Get("delay"))
	r.setup.Rate, r.setup.Delay = float64(rate), units.Microseconds(delay)
	return r.watch(receives, nic)
}

// watch has the logs of NICs kept from now on, and forgets what was kept before.
// The first sends in direction 0, unless receives is set; a second one is at the
// other end of its wire.
func (r *recorder) watch(receives bool, nics ...*via.NIC) error {
	if r == nil {
		return nil
	}
	r.ends, r.records, r.dropped = nil, nil, 0
	r.setup.Burst, r.setup.Buffers = cmp.Or(r.setup.Burst, speed.DefaultBurst), cmp.Or(r.setup.Buffers, engine.DefaultBuffers)
	sends := 0
	if receives {
		sends = 1
	}
	for i, nic := range nics {
		if err := nic.EnableDMALog(maxLogged / len(nics)); err != nil {
			return &command.DeviceError{Err: err}
		}
		r.ends = append(r.ends, recorded{nic, sends ^ i})
	}
	return nil
}

// finish reads the logs and puts the file in its place. The NICs must still be
// open. Nothing is written if *err says that the command has failed.
func (r *recorder) finish(err *error) *logReport {
	if r == nil || *err != nil {
		return nil
	}
	if *err = r.read(); *err != nil {
		return nil
	}
	e := dmalog.Write(r.file, r.log())
	if e == nil {
		e = r.file.Commit()
	}
	if e != nil {
		*err = outfile.Explain("--dma-log", e)
		return nil
	}
	return &logReport{File: r.path, Transfers: len(r.records), Dropped: r.dropped}
}

// read takes everything that the NICs have logged since watch.
func (r *recorder) read() error {
	r.records = []dmalog.Record{}
	for _, end := range r.ends {
		records, dropped, err := end.read()
		if err != nil {
			return err
		}
		r.records = append(r.records, records...)
		r.dropped += dropped
	}
	rebase(r.records)
	return r.readPolicy(r.ends[0].nic)
}

// log returns the content of the file.
func (r *recorder) log() dmalog.Log { return dmalog.Log{Setup: &r.setup, Records: r.records} }

// readPolicy notes under which policy a NIC, and the one at the other end, moved frames.
func (r *recorder) readPolicy(nic *via.NIC) error {
	state, err := nic.Policy()
	if err != nil {
		return err
	}
	r.setup.At = state.At.String()
	r.setup.Send = dmalog.Side{Policy: state.Send.Name, MinPulse: state.Send.MinPulse}
	r.setup.Receive = dmalog.Side{Policy: state.Receive.Name, MinPulse: state.Receive.MinPulse}
	if r.program.DecidesTransfers() {
		r.setup.At, r.setup.Send.Policy, r.setup.Receive.Policy = dmalog.AtProgram, r.program.Name, r.program.Name
	}
	return nil
}

// read takes everything that a NIC has logged, in the terms of the file.
func (e recorded) read() (records []dmalog.Record, dropped uint64, err error) {
	for {
		var p [1024]dmalog.Record
		n, err := e.nic.ReadDMALog(p[:])
		if err != nil {
			return nil, 0, err
		}
		if n == 0 {
			break
		}
		records = append(records, p[:n]...)
	}
	for i := range records {
		records[i].Flow = e.sends
		if engine := records[i].Engine; engine == dmalog.NetRcv || engine == dmalog.HostRcv {
			records[i].Flow = 1 - e.sends
		}
	}
	state, err := e.nic.DMALog()
	return records, uint64(state.Lost), err
}

// rebase puts records in order, and the beginning of the first at time zero.
func rebase(records []dmalog.Record) {
	slices.SortStableFunc(records, func(a, b dmalog.Record) int { return cmp.Compare(a.Start, b.Start) })
	if len(records) == 0 {
		return
	}
	origin := records[0].Start
	for i := range records {
		records[i].Start -= origin
		records[i].End -= origin
	}
}

// discard removes the file if it was not put in its place, and adds its error
// to *err.
func (r *recorder) discard(err *error) {
	if r == nil {
		return
	}
	if e := r.file.Discard(); e != nil {
		*err = errors.Join(*err, e)
	}
}
