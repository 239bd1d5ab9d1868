package modelcmd

import (
	"cmp"
	"context"
	"io"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/table"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// trunkFlags describe senders that share a trunk.
type trunkFlags struct {
	profileFlag
	payloadFlag
	Count    int     `flag:"count" default:"100" help:"payloads of each sender"`
	Gap      float64 `flag:"gap-us" help:"microseconds between a sender's postings (default: as fast as the host can)"`
	Senders  int     `flag:"senders" default:"2" help:"hosts that send, each to one of its own"`
	Slow     float64 `flag:"slow" default:"1" help:"the first sender's bus takes so many times as long for each byte"`
	Packet   int     `flag:"packet" help:"most bytes of a packet; the trunk is free between packets (default: a payload is one packet)"`
	Watchdog float64 `flag:"watchdog-us" help:"end a payload whose sender holds the trunk and moves nothing for so many microseconds (default: never)"`
}

// shared checks the flags and loads the profile.
func (f *trunkFlags) shared(flag string, policies ...string) (c report.Case, t virtual.Trunk, err error) {
	if err := cmp.Or(checkPolicies(flag, policies...), between("--payload", f.Payload, 1, 1<<20, "bytes"), between("--count", f.Count, 1, 100_000, ""),
		between("--gap-us", f.Gap, 0, maxGap, ""), between("--senders", f.Senders, 1, virtual.MaxSenders, ""),
		between("--slow", f.Slow, 1, virtual.MaxSlow, "times"), between("--packet", f.Packet, 0, pipeline.MaxFrame, "bytes"),
		between("--watchdog-us", f.Watchdog, 0, maxGap, "")); err != nil {
		return c, t, err
	}
	p, err := loadProfile("--profile", f.Profile)
	return report.Case{Profile: p, Payload: f.Payload, Count: f.Count, Gap: profile.Micros(f.Gap), Warmup: -1},
		virtual.Trunk{Senders: f.Senders, Slow: f.Slow, Packet: f.Packet, Watchdog: profile.Micros(f.Watchdog)}, err
}

type trunksFlags struct {
	trunkFlags
	Policies []string `flag:"policies" split:"comma" default:"store-and-forward,eager,amp" help:"delivery policies"`
}

func (x *commands) trunk(ctx context.Context, f *trunksFlags, _ []string) error {
	c, t, err := f.shared("--policies", f.Policies...)
	if err != nil {
		return err
	}
	rows, err := c.OnTrunk(ctx, f.Policies, t)
	if err != nil {
		return err
	}
	return x.Print(rows, func(w io.Writer) error { return table.Write(w, rows) })
}

// trunkPicture shows who holds a trunk.
type trunkPicture struct {
	trunkFlags `override:"count" default:"4"`
	policyFlag
}

func (f *trunkPicture) draw(ctx context.Context) ([]byte, error) {
	c, t, err := f.shared("--policy", f.Policy)
	if err != nil {
		return nil, err
	}
	c.Policy = f.Policy
	return c.TrunkGraph(ctx, t)
}
