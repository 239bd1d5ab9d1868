package shell

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

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
