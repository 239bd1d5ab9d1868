package cli

import (
	"embed"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/firmware-loader/images"
	"github.com/trapeze-nic/trapeze/lab/benchcmd"
	"github.com/trapeze-nic/trapeze/lab/modelcmd"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/hostcmd"
)

// completer lists what a word that begins with prefix could become.
type completer = cobra.CompletionFunc

// flagValues are the values of flags, by name, in every command that has them. For
// flags that are not here a shell offers files.
var flagValues = map[string]completer{
	"device":    completeDevice,
	"wire":      oneOf("loop", "udp://", "shm:", "memif:", "pci:", "afxdp:", "vhost-user:"),
	"progress":  oneOf("auto", "bar", "plain", "none"),
	"policy-at": oneOf("host", "nic"),
	"image":     oneOf(images.Names()...),
	"profile":   completeProfile,
	"profiles":  eachOf(completeProfile),
	"policies":  eachOf(oneOf(pipeline.PolicyNames()...)),
	"sides":     oneOf("both", "send", "recv"),
	"half":      oneOf("latencies", "bandwidths", "store-and-forward", "cut-through"),
	"driver":    oneOf("vfio-pci"),
	"format":    oneOf("pcap", "pcapng"),
	"section":   oneOf(sections...),
	"priority":  oneOf("high", "low"),

	"tests":       eachOf(oneOf(benchcmd.Tests()...)),
	"wires":       eachOf(oneOf(benchcmd.Wires()...)),
	"placements":  eachOf(oneOf("default", "inline", "thread")),
	"placement":   oneOf("default", "inline", "thread"),
	"reliability": eachOf(oneOf(benchcmd.Levels()...)),
	"curves":      eachOf(oneOf(benchcmd.Curves()...)),
	"cores":       oneOf("auto", "none"),
}

// argumentValues are the arguments of commands, by path. Commands that are not here
// and take no arguments are offered none, others files.
var argumentValues = map[string]completer{
	"trapeze bind":           hostcmd.Complete,
	"trapeze unbind":         hostcmd.Complete,
	"trapeze doctor":         hostcmd.Complete,
	"trapeze model profiles": oneOf(append(modelcmd.Profiles(), modelcmd.CellProfiles()...)...),
	"trapeze load":           completeImage,
	"trapeze fw check":       completeImage,
	"trapeze fw show":        completeImage,
	"trapeze fw sign":        completeImage,
	"trapeze fw verify":      completeImage,
	"trapeze fw disasm":      completeImage,
	"trapeze fw map":         completeImage,
	"trapeze send":           cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	"trapeze fw keygen":      cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
}

// addCompletion has shells complete the values of flags and arguments, below root.
func addCompletion(root *cobra.Command) {
	// It works, but few come to read about it.
	root.CompletionOptions.HiddenDefaultCmd = true
	root.InitDefaultCompletionCmd()
	addValues(root)
	completion, _, err := root.Find([]string{"completion"})
	cobra.CheckErr(err)
	completion.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	completion.Example = "  source <(trapeze completion bash)"
	completion.Long += "\nJSON keys: those of 'trapeze help --json'.\n"
	for _, shell := range completion.Commands() {
		shell.Example = "  " + shell.CommandPath()
		if script, err := completionScripts.ReadFile("completion/" + shell.Name()); err == nil {
			replaceScript(shell, string(script))
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

// replaceScript has a command print a script of ours.
func replaceScript(shell *cobra.Command, script string) {
	shell.Long = "Print the script with which " + shell.Name() + " completes trapeze's command lines. It needs no package.\n\n" +
		howToLoad[shell.Name()] + "\n"
	shell.RunE = func(c *cobra.Command, _ []string) error {
		if none, err := c.Flags().GetBool("no-descriptions"); err == nil && none {
			script = strings.ReplaceAll(script, " __complete ", " "+cobra.ShellCompNoDescRequestCmd+" ")
		}
		_, err := io.WriteString(c.OutOrStdout(), script)
		return err
	}
}

func addValues(c *cobra.Command) {
	for _, sub := range c.Commands() {
		addValues(sub)
	}
	for name, values := range flagValues {
		// Some commands know better what a flag of theirs takes.
		if _, own := c.GetFlagCompletionFunc(name); own {
			continue
		}
		if c.Flags().Lookup(name) != nil || c.PersistentFlags().Lookup(name) != nil {
			cobra.CheckErr(c.RegisterFlagCompletionFunc(name, values))
		}
	}
	if c.Flags().Lookup("policy") != nil {
		names := driver.HostPolicies()
		if c.Flags().Lookup("policy-at") == nil { // nothing but a model knows all
			names = pipeline.PolicyNames()
		}
		cobra.CheckErr(c.RegisterFlagCompletionFunc("policy", oneOf(names...)))
	}
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
		if values, ok := argumentValues[c.CommandPath()]; ok {
			c.ValidArgsFunction = values
		}
	}
}

// oneOf completes a word that is one of a few.
func oneOf(words ...string) completer {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		if slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(w, ":") || strings.HasSuffix(w, "/") }) {
			directive |= cobra.ShellCompDirectiveNoSpace // some go on
		}
		return words, directive
	}
}

// eachOf completes the last word of a list with commas.
func eachOf(one completer) completer {
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

// completeProfile offers the built-in platforms, and files.
func completeProfile(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return modelcmd.Profiles(), cobra.ShellCompDirectiveDefault
}

// completeImage offers the images that come with trapeze for the first argument, and
// files.
func completeImage(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var list []cobra.Completion
	for _, i := range images.Catalogue() {
		list = append(list, cobra.CompletionWithDesc("image:"+i.Name, i.Summary))
	}
	return list, cobra.ShellCompDirectiveDefault
}

// completeDevice offers addresses: the beginnings of emulated ones, the functions of
// this host, and paths of sockets.
func completeDevice(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const open = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	scheme, rest, ok := strings.Cut(prefix, ":")
	switch {
	case strings.Contains(rest, "?") && (scheme == emulator.Scheme || scheme == emulator.EthernetScheme):
		return emulatorOptions(prefix), open
	case ok && scheme == "emu":
		return []cobra.Completion{"emu:", "emu:?wire=udp://", "emu:?wire=shm:", "emu:?wire=memif:", "emu:?wire=mem:"}, open
	case ok && (scheme == "vfio-user" || scheme == "vhost-user"):
		return sockets(scheme+":", rest), open
	case strings.HasPrefix(prefix, "eth:vhost-user:"):
		return sockets("eth:vhost-user:", strings.TrimPrefix(prefix, "eth:vhost-user:")), open
	}
	list := []cobra.Completion{"emu:", "vfio-user:", "eth:vhost-user:"}
	if strings.HasPrefix(c.CommandPath(), "trapeze frames ") { // it takes ports without a NIC around them
		list = append(list, "vhost-user:", "afxdp:")
	}
	functions, _ := hostcmd.Complete(c, nil, strings.TrimPrefix(rest, "pci:"))
	for _, f := range functions {
		list = append(list, "pci:"+f, "eth:pci:"+f)
	}
	return list, open
}

// emulatorOptions completes the last option of an address: its name, or the kind of a wire.
func emulatorOptions(prefix string) (list []cobra.Completion) {
	start := strings.LastIndexAny(prefix, "?&") + 1
	before, option := prefix[:start], prefix[start:]
	if strings.HasPrefix(option, "wire=") {
		for _, w := range []string{"udp://", "shm:", "memif:", "mem:", "pci:", "afxdp:", "vhost-user:"} {
			list = append(list, before+"wire="+w)
		}
		return list
	}
	for _, name := range emulator.OptionNames() {
		if !strings.Contains(before, "?"+name+"=") && !strings.Contains(before, "&"+name+"=") {
			list = append(list, before+name+"=")
		}
	}
	return list
}

// sockets lists the sockets and folders whose paths begin with prefix.
func sockets(before, prefix string) (list []cobra.Completion) {
	dir, base := filepath.Split(prefix)
	entries, err := os.ReadDir(filepath.Join(".", dir))
	if filepath.IsAbs(dir) {
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		return nil // there is nobody to tell
	}
	for _, e := range entries {
		switch {
		case !strings.HasPrefix(e.Name(), base):
		case e.IsDir():
			list = append(list, before+dir+e.Name()+"/")
		case e.Type()&os.ModeSocket != 0:
			list = append(list, before+dir+e.Name())
		}
	}
	return list
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
