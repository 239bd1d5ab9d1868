package modelcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

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

func usage(flag, value, allowed string) error {
	return &option.Error{Option: flag, Value: value, Allowed: allowed}
}

// between refuses a number that is out of range; what follows the range in words.
func between[T int | float64](flag string, value, low, high T, what string) error {
	if value >= low && value <= high {
		return nil
	}
	plain := func(v T) string { return strconv.FormatFloat(float64(v), 'f', -1, 64) }
	return usage(flag, fmt.Sprint(value), strings.TrimSpace(plain(low)+" to "+plain(high)+" "+what))
}

// builtIn loads a platform of any kind. A name that is not there is a mistake in the command,
// a file that cannot be used is not.
func builtIn[T any](flag, name string, of profile.Library[T]) (T, error) {
	p, err := of.Load(name)
	if errors.Is(err, profile.ErrUnknown) && !strings.HasSuffix(name, ".toml") {
		err = usage(flag, name, strings.Join(of.Names(), ", ")+", or a file ending in .toml")
	}
	return p, err
}

func loadProfile(flag, name string) (*profile.Profile, error) {
	return builtIn(flag, name, profile.Hosts)
}

func loadProfiles(flag string, names []string) ([]*profile.Profile, error) {
	if len(names) == 0 {
		return nil, usage(flag, "", strings.Join(profile.Hosts.Names(), ", ")+", or files ending in .toml")
	}
	profiles := make([]*profile.Profile, len(names))
	for i, name := range names {
		var err error
		if profiles[i], err = loadProfile(flag, name); err != nil {
			return nil, err
		}
	}
	return profiles, nil
}

func checkPolicies(flag string, names ...string) error {
	if len(names) == 0 {
		return usage(flag, "", strings.Join(pipeline.PolicyNames(), ", "))
	}
	for _, name := range names {
		if !slices.Contains(pipeline.PolicyNames(), name) {
			return usage(flag, name, strings.Join(pipeline.PolicyNames(), ", "))
		}
	}
	return nil
}

// input reads a file that a flag names, by which errors name it.
func input[T any](flag, name string, read func(r io.Reader, name string) (T, error)) (v T, err error) {
	if name == "" {
		return v, usage(flag, "", "a file to read")
	}
	f, err := os.Open(name)
	if err != nil {
		return v, fmt.Errorf("%s: %w", flag, err)
	}
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return v, errors.Join(cmp.Or(err, fmt.Errorf("%s %s: %w", flag, name, unix.EISDIR)), f.Close())
	}
	v, err = read(f, name)
	return v, errors.Join(err, f.Close())
}

type listed struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
	TOML    string `json:"toml,omitempty" help:"with NAME: the text" text:"-"`
}

// library has built-in platforms of a kind.
type library interface {
	Names() []string
	About(name string) (summary, text string)
}

// catalogue makes the row of a command that prints a list of built-in platforms, or the TOML text of the one that is named.
func catalogue(x *commands, name, kind string, of ...library) cmdtable.Row {
	return cmdtable.Does(name, func(_ context.Context, _ *cmdtable.NoFlags, args []string) error {
		var all []listed
		var names []string
		for _, l := range of {
			for _, name := range l.Names() {
				summary, text := l.About(name)
				one := listed{Name: name, Summary: summary}
				if slices.Contains(args, name) {
					if one.TOML = text; x.JSON {
						return x.PrintJSON(one)
					}
					_, err := fmt.Fprint(x.Stdout, text)
					return err
				}
				all, names = append(all, one), append(names, name)
			}
		}
		if len(args) > 0 {
			return usage(kind, args[0], strings.Join(names, ", "))
		}
		return x.Report(all)
	}, []listed{})
}
