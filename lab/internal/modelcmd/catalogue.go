package modelcmd

import (
	"context"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// listed is one built-in platform.
type listed struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
	TOML    string `json:"toml,omitempty" help:"with NAME: the text" text:"-"`
}

// listOf lists the platforms of a library.
func listOf[T any](l profile.Library[T], summary func(T) string) (all []listed, err error) {
	for _, name := range l.Names() {
		p, err := l.Load(name)
		if err != nil {
			return nil, err
		}
		text, err := l.Source(name)
		if err != nil {
			return nil, err
		}
		all = append(all, listed{name, summary(p), string(text)})
	}
	return all, nil
}

// catalogue prints a list of built-in platforms, or the TOML text of the one that args names.
func (x *commands) catalogue(kind string, args []string, all []listed) error {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	if len(args) == 0 {
		for i := range all {
			all[i].TOML = ""
		}
		return x.Report(all)
	}
	i := slices.Index(names, args[0])
	switch {
	case i < 0:
		return usage(kind, args[0], strings.Join(names, ", "))
	case x.JSON:
		return x.PrintJSON(all[i])
	}
	_, err := x.Stdout.Write([]byte(all[i].TOML))
	return err
}

func memorySummary(s *profile.MemorySystem) string { return s.Summary }

func (x *commands) platforms(_ context.Context, _ *cmdtable.NoFlags, args []string) error {
	all, err := listOf(profile.Systems, memorySummary)
	if err != nil {
		return err
	}
	return x.catalogue("platform", args, all)
}

func (x *commands) profiles(_ context.Context, _ *cmdtable.NoFlags, args []string) error {
	hosts, err := listOf(profile.Hosts, func(p *profile.Profile) string { return p.Summary })
	if err != nil {
		return err
	}
	celled, err := listOf(profile.CellHosts, func(p *profile.Cells) string { return p.Summary })
	if err != nil {
		return err
	}
	bridged, err := listOf(profile.Bridges, memorySummary)
	if err != nil {
		return err
	}
	return x.catalogue("profile", args, slices.Concat(hosts, celled, bridged))
}
