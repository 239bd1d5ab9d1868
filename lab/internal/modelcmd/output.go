package modelcmd

import (
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// moved is one entry of the JSON lists.
type moved struct {
	Packet int     `json:"packet"`
	Flow   int     `json:"flow,omitempty" help:"if it is not 0; of a fetch, 1 for the request"`
	Start  float64 `json:"start_us"`
	End    float64 `json:"end_us"`
	Bytes  int     `json:"bytes"`
}

// transfers are all of a run, by engine.
type transfers struct {
	HostTx  []moved `json:"hostTx" text:"count"`
	NetTx   []moved `json:"netTx" text:"count"`
	NetRcv  []moved `json:"netRcv" text:"count"`
	HostRcv []moved `json:"hostRcv" text:"count"`
}

// result is the JSON object of "trapeze-lab model".
type result struct {
	Latency   profile.Time `json:"latency_us"`
	Bandwidth float64      `json:"bandwidth_mb_s"`
	Transfers transfers    `json:"transfers" text:"flat"`
	Busy      profile.Time `json:"bus_busy_us"`
}

func transfersOf(log []dmalog.Record) (t transfers) {
	lists := [dmalog.Engines]*[]moved{&t.HostTx, &t.NetTx, &t.NetRcv, &t.HostRcv}
	for _, l := range lists {
		*l = []moved{}
	}
	for _, l := range log {
		*lists[l.Engine] = append(*lists[l.Engine], moved{Packet: l.Packet, Flow: l.Flow,
			Start: dmalog.Microseconds(l.Start), End: dmalog.Microseconds(l.End), Bytes: l.Bytes})
	}
	return t
}

// outputFile is the file of --output.
type outputFile struct {
	Output string `flag:"output" help:"file to write, whole or not at all (required)"`
	cmdtable.Force
}

// check refuses a file that could not be written, before anything is computed.
func (o *outputFile) check() error {
	if o.Output == "" {
		return usage("--output", "", "a file to write")
	}
	return outfile.Explain("--output", outfile.Check(o.Output, o.Force.Force))
}

// write writes a file whole or not at all, and says so if asked to.
func (o *outputFile) write(e *command.Env, content []byte) error {
	err := outfile.Write(o.Output, 0o644, o.Force.Force, content)
	if err != nil || !e.JSON {
		return outfile.Explain("--output", err)
	}
	return e.PrintJSON(written{o.Output, len(content)})
}

// written holds what a command that writes a file prints with --json.
type written struct {
	File  string `json:"file"`
	Bytes int    `json:"bytes"`
}
