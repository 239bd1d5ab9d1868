package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/hostcmd"
)

// wires are the kinds that an emulated NIC takes.
var wires = []string{"udp://", "shm:", "memif:", "mem:", "pci:", "afxdp:", "vhost-user:", "vfio-user:"}

// flagValues are the values of flags, by name, in every command that has them.
var flagValues = map[string]shell.Completer{
	"device":  completeDevice,
	"wire":    shell.OneOf(append([]string{"loop"}, wires...)...),
	"policy":  shell.OneOf(driver.HostPolicies()...),
	"image":   shell.OneOf(firmware.ShippedNames()...),
	"driver":  shell.OneOf("vfio-pci"),
	"section": shell.OneOf(sections...),
}

// argumentValues are the arguments of commands, by path.
var argumentValues = map[string]shell.Completer{
	"bind":      hostcmd.Complete,
	"unbind":    hostcmd.Complete,
	"doctor":    hostcmd.Complete,
	"load":      completeImage,
	"fw check":  completeImage,
	"fw show":   completeImage,
	"fw sign":   completeImage,
	"fw verify": completeImage,
	"fw disasm": completeImage,
	"fw map":    completeImage,
	"send":      cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	"fw keygen": cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
}

// completeImage offers the images that come with trapeze for the first argument, and
// files.
func completeImage(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var list []cobra.Completion
	for _, i := range firmware.ShippedImages() {
		list = append(list, cobra.CompletionWithDesc("image:"+i.Name, i.Summary))
	}
	return list, cobra.ShellCompDirectiveDefault
}

// completeDevice offers addresses: the beginnings of emulated ones, and the functions of this host.
func completeDevice(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const open = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	scheme, rest, ok := strings.Cut(prefix, ":")
	switch {
	case strings.Contains(rest, "?") && (scheme == emulator.Scheme || scheme == emulator.EthernetScheme):
		return emulatorOptions(prefix), open
	case ok && scheme == emulator.Scheme:
		return append(emulatorOptions("emu:?wire="), "emu:"), open
	}
	list := []cobra.Completion{"emu:", "vfio-user:", "eth:vhost-user:", "eth:vfio-user:"}
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
		for _, w := range wires {
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
