package modelcmd

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

func (x *commands) profiles(_ context.Context, _ *cmdtable.NoFlags, args []string) error {
	return catalogue[listedProfile]{
		kind: "profile", listed: profile.Hosts.Names(), others: slices.Concat(profile.CellHosts.Names(), profile.Bridges.Names()), source: profileSource, of: listedProfileOf,
		header: "name\tread MB/s\twrite MB/s\tlink MB/s\tbus\tsummary",
		row: func(p listedProfile) string {
			return fmt.Sprintf("%s\t%g\t%g\t%g\t%s duplex\t%s", p.Name, p.Read, p.Write, p.Link, p.Duplex, p.Summary)
		},
	}.print(x.Env, args)
}

// profileSource returns the text of a profile, or of a platform with cells or a bridge.
func profileSource(name string) ([]byte, error) {
	for _, source := range []func(string) ([]byte, error){profile.CellHosts.Source, profile.Bridges.Source} {
		if text, err := source(name); err == nil {
			return text, nil
		}
	}
	return profile.Hosts.Source(name)
}

// listedProfile is the list's entry of a profile. A platform with cells or with a bridge has no rates.
type listedProfile struct {
	Name    string  `json:"name"`
	Summary string  `json:"summary"`
	Read    float64 `json:"read_mb_s,omitempty"`
	Write   float64 `json:"write_mb_s,omitempty"`
	Link    float64 `json:"link_mb_s,omitempty"`
	Duplex  string  `json:"bus_duplex,omitempty"`
	TOML    string  `json:"toml,omitempty" help:"with NAME: the text"`
}

func listedProfileOf(name, toml string) (listedProfile, error) {
	if p, err := profile.CellHosts.Load(name); err == nil {
		return listedProfile{Name: name, Summary: p.Summary, TOML: toml}, nil
	}
	if p, err := profile.Bridges.Load(name); err == nil {
		return listedProfile{Name: name, Summary: p.Summary, TOML: toml}, nil
	}
	p, err := profile.Hosts.Load(name)
	if err != nil {
		return listedProfile{}, err
	}
	duplex := "half"
	if p.Sender.FullDuplex {
		duplex = "full"
	}
	mbs := func(c profile.Cost) float64 { return math.Round(c.Bandwidth()*10) / 10 }
	return listedProfile{name, p.Summary, mbs(p.Sender.Read), mbs(p.Receiver.Write), mbs(p.Link.Pulse), duplex, toml}, nil
}
