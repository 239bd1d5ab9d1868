package modelcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
)

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
