package shell

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trapeze-nic/trapeze/internal/command"
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

// Completer lists what a word could become.
type Completer = cobra.CompletionFunc

// addValues has shells complete the values of flags and arguments of a command, and of those below.
func (p *Program) addValues(c *cobra.Command) {
	for _, sub := range c.Commands() {
		p.addValues(sub)
	}
	for name, values := range p.Values {
		if _, own := c.GetFlagCompletionFunc(name); c.Flags().Lookup(name) != nil && !own {
			cobra.CheckErr(c.RegisterFlagCompletionFunc(name, values))
		}
	}
	if c.ValidArgsFunction == nil { // help has one
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	if values, ok := p.Arguments[strings.TrimPrefix(c.CommandPath(), p.Name+" ")]; ok {
		c.ValidArgsFunction = values
	}
}

// OneOf completes a word that is one of a few. Words that end in a colon or a slash go on.
func OneOf(words ...string) Completer {
	directive := cobra.ShellCompDirectiveNoFileComp
	if slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(w, ":") || strings.HasSuffix(w, "/") }) {
		directive |= cobra.ShellCompDirectiveNoSpace // some go on
	}
	return cobra.FixedCompletions(words, directive)
}

// version makes the command that says which program this is.
func (r *run) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Which " + r.Name + " this is",
		Long: `Which ` + r.Name + ` this is: version of the module, commit that it was built from,
version of Go and platform. 'go version -m' lists the modules in it.

JSON keys: version, revision (commit), date (of the commit, RFC 3339), modified
(not all is in the commit), go, platform.`,
		Example: "  " + r.Name + " version\n  " + r.Name + " version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := command.Built()
			return r.Printf(v, "%s %s\n", r.Name, v)
		},
	}
}
