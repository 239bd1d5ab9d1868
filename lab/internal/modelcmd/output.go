package modelcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

// transfer is one entry of the JSON lists.
type transfer struct {
	Packet int     `json:"packet"`
	Flow   int     `json:"flow,omitempty" help:"if it is not 0; of a fetch, 1 for the request"`
	Start  float64 `json:"start_us"`
	End    float64 `json:"end_us"`
	Bytes  int     `json:"bytes"`
}

// transfers are all of a run, by engine.
type transfers struct {
	HostTx  []transfer `json:"hostTx"`
	NetTx   []transfer `json:"netTx"`
	NetRcv  []transfer `json:"netRcv"`
	HostRcv []transfer `json:"hostRcv"`
}

// result is the JSON object of "trapeze-lab model".
type result struct {
	Latency   profile.Time `json:"latency_us"`
	Bandwidth float64      `json:"bandwidth_mb_s"`
	Transfers transfers    `json:"transfers"`
	Busy      profile.Time `json:"bus_busy_us"`
}

func transfersOf(log []dmalog.Record) (t transfers) {
	lists := [dmalog.Engines]*[]transfer{&t.HostTx, &t.NetTx, &t.NetRcv, &t.HostRcv}
	for _, l := range lists {
		*l = []transfer{}
	}
	for _, l := range log {
		*lists[l.Engine] = append(*lists[l.Engine], transfer{Packet: l.Packet, Flow: l.Flow,
			Start: dmalog.Microseconds(l.Start), End: dmalog.Microseconds(l.End), Bytes: l.Bytes})
	}
	return t
}

func writeText(w io.Writer, c *report.Case, r *result) error {
	t := &r.Transfers
	_, err := fmt.Fprintf(w, `%s, %s, %d payloads of %d bytes
latency            %10.3f us   one payload, one way, idle system
bandwidth          %10.3f MB/s
buses occupied     %10.3f us
transfers          hostTx %d, netTx %d, netRcv %d, hostRcv %d
`, c.Profile.Name, c.Policy, c.Count, c.Payload, r.Latency.Microseconds(), r.Bandwidth, r.Busy.Microseconds(),
		len(t.HostTx), len(t.NetTx), len(t.NetRcv), len(t.HostRcv))
	return err
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
	if stream(o.Output) {
		return nil
	}
	return outfile.Explain("--output", outfile.Check(target(o.Output), o.Force.Force))
}

// write writes a file whole or not at all, and says so if asked to. A pipe or a
// terminal is written to.
func (o *outputFile) write(e *command.Env, content []byte) error {
	var err error
	if stream(o.Output) {
		err = writeStream(o.Output, content)
	} else {
		err = outfile.Explain("--output", outfile.Write(target(o.Output), 0o644, o.Force.Force, content))
	}
	if err != nil || !e.JSON {
		return err
	}
	return e.PrintJSON(written{o.Output, len(content)})
}

// stream reports whether a name is of something that is written to and not replaced.
func stream(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// target is the file that a link points to: that is replaced, and not the link.
func target(name string) string {
	if t, err := filepath.EvalSymlinks(name); err == nil {
		return t
	}
	return name
}

// written holds what a command that writes a file prints with --json.
type written struct {
	File  string `json:"file"`
	Bytes int    `json:"bytes"`
}

func writeStream(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err = f.Write(content); err != nil {
		err = fmt.Errorf("write %s: %w", name, err)
	}
	return errors.Join(err, f.Close())
}
