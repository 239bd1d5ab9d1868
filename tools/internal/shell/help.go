package shell

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
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

// addHelp has help printed as JSON if that is asked for, by --help and by 'help'.
func (r *run) addHelp(root *cobra.Command) {
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", command.Columns)))
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		if !r.JSON {
			// An error of writing is kept by stdout.
			_, _ = fmt.Fprintf(r.Stdout, "%s\n\n", command.Wrap(strings.TrimSpace(cmp.Or(c.Long, c.Short))))
			if c.Runnable() || c.HasSubCommands() {
				_, _ = fmt.Fprint(r.Stdout, command.Wrap(c.UsageString()))
			}
			return
		}
		// An error of writing is kept by stdout.
		_ = r.PrintJSON(describeCommand(c))
	})
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]...",
		Short: "Help about a command or topic",
		Long: `Help about a command or topic, as COMMAND --help prints it.

` + keys.Of(helpReport{}),
		Example:           r.HelpExample,
		ValidArgsFunction: completeCommands,
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if err := noSuchCommand(c, rest); err != nil {
				return err
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	})
}

// wrapExamples makes the examples of c, and of what stands below it, fit terminals.
func wrapExamples(c *cobra.Command) {
	c.Example = command.WrapExample(c.Example)
	for _, sub := range c.Commands() {
		wrapExamples(sub)
	}
}

func describeCommand(c *cobra.Command) helpReport {
	r := helpReport{Command: c.CommandPath(), Usage: c.UseLine(), Summary: c.Short, Description: c.Long, Examples: c.Example,
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
