package shell

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpReport is the JSON of help.
type helpReport struct {
	Command     string        `json:"command"`
	Usage       string        `json:"usage"`
	Summary     string        `json:"summary"`
	Description string        `json:"description"`
	Examples    string        `json:"examples"`
	Flags       []helpFlag    `json:"flags"`
	Commands    []helpCommand `json:"commands"`
}

type helpFlag struct {
	Name      string `json:"name"`
	Shorthand string `json:"shorthand"`
	Type      string `json:"type"`
	Default   string `json:"default"`
	Usage     string `json:"usage"`
}

type helpCommand struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
}

// addHelp has help printed as JSON if that is asked for, flags wrapped where terminals end, and commands refused
// that are not known.
func (r *run) addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("unknown command %q for %q", rest[0], c.CommandPath())
			}
			return err
		}
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	text := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if !r.JSON {
			text(c, args)
			return
		}
		_ = r.PrintJSON(describe(c)) // stdout keeps an error of writing
	})
}

func describe(c *cobra.Command) helpReport {
	r := helpReport{Command: c.CommandPath(), Usage: c.UseLine(), Summary: c.Short, Description: cmp.Or(c.Long, c.Short), Examples: c.Example,
		Flags: []helpFlag{}, Commands: []helpCommand{}}
	add := func(f *pflag.Flag) {
		if !f.Hidden {
			r.Flags = append(r.Flags, helpFlag{f.Name, f.Shorthand, f.Value.Type(), f.DefValue, f.Usage})
		}
	}
	c.LocalFlags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			r.Commands = append(r.Commands, helpCommand{sub.Name(), sub.Short})
		}
	}
	return r
}
