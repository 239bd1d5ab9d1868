package shell

import (
	"embed"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Completer lists what a word could become.
type Completer = cobra.CompletionFunc

// addCompletion has shells complete the values of flags and arguments, below root.
func (r *run) addCompletion(root *cobra.Command) {
	// It works, but few come to read about it.
	root.CompletionOptions.HiddenDefaultCmd = true
	root.InitDefaultCompletionCmd()
	r.addValues(root)
	completion, _, err := root.Find([]string{"completion"})
	cobra.CheckErr(err)
	completion.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	completion.Example = "  source <(" + r.Name + " completion bash)"
	completion.Long += "\nJSON keys: those of '" + r.Name + " help --json'.\n"
	for _, shell := range completion.Commands() {
		shell.Example = "  " + shell.CommandPath()
		if script, err := completionScripts.ReadFile("completion/" + shell.Name()); err == nil {
			r.replaceScript(shell, string(script))
		}
		shell.Long += "\nJSON: none. It prints a script, with --json or without.\n"
	}
}

// completionScripts are ours. Cobra's fail at quotes that are open, and in bash without a package.
//
//go:embed completion
var completionScripts embed.FS

// howToLoad says how a shell gets its script.
var howToLoad = map[string]string{
	"bash": "  source <(trapeze completion bash)",
	"zsh":  "  source <(trapeze completion zsh)   after compinit",
	"fish": "  trapeze completion fish | source",
}

// replaceScript has a command print a script of ours. The scripts are those of a program called
// trapeze; others put their name in its place.
func (r *run) replaceScript(shell *cobra.Command, script string) {
	named := func(text string) string { return strings.ReplaceAll(text, "trapeze", r.Name) }
	shell.Long = named("Print the script with which " + shell.Name() + " completes trapeze's command lines. It needs no package.\n\n" +
		howToLoad[shell.Name()] + "\n")
	script = named(script)
	shell.RunE = func(c *cobra.Command, _ []string) error {
		if none, err := c.Flags().GetBool("no-descriptions"); err == nil && none {
			script = strings.ReplaceAll(script, " __complete ", " "+cobra.ShellCompNoDescRequestCmd+" ")
		}
		_, err := io.WriteString(c.OutOrStdout(), script)
		return err
	}
}

func (r *run) addValues(c *cobra.Command) {
	for _, sub := range c.Commands() {
		r.addValues(sub)
	}
	add := func(name string, values Completer) {
		// Some commands know better what a flag of theirs takes.
		if _, own := c.GetFlagCompletionFunc(name); own {
			return
		}
		if c.Flags().Lookup(name) != nil || c.PersistentFlags().Lookup(name) != nil {
			cobra.CheckErr(c.RegisterFlagCompletionFunc(name, values))
		}
	}
	add("progress", OneOf("auto", "bar", "plain", "none"))
	add("log-format", OneOf("text", "json"))
	add("log-level", OneOf("debug", "info", "warn", "error"))
	add("pprof", OneOf("127.0.0.1:"))
	for name, values := range r.Values {
		add(name, values)
	}
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
		if values, ok := r.Arguments[strings.TrimPrefix(c.CommandPath(), r.Name+" ")]; ok {
			c.ValidArgsFunction = values
		}
	}
}

// OneOf completes a word that is one of a few. Words that end in a colon or a slash go on.
func OneOf(words ...string) Completer {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		if slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(w, ":") || strings.HasSuffix(w, "/") }) {
			directive |= cobra.ShellCompDirectiveNoSpace // some go on
		}
		return words, directive
	}
}

// EachOf completes the last word of a list with commas, as one completes each.
func EachOf(one Completer) Completer {
	return func(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := prefix[:strings.LastIndexByte(prefix, ',')+1]
		words, directive := one(c, args, prefix[len(before):])
		list := make([]cobra.Completion, len(words))
		for i, w := range words {
			list[i] = before + w
		}
		if before != "" {
			directive = cobra.ShellCompDirectiveNoFileComp // the shell knows files, but not behind a comma
		}
		return list, directive | cobra.ShellCompDirectiveNoSpace
	}
}

// completeCommands completes the arguments of help.
func completeCommands(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var list []cobra.Completion
	if of, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 {
		for _, sub := range of.Commands() {
			if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
				list = append(list, cobra.CompletionWithDesc(sub.Name(), sub.Short))
			}
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}
