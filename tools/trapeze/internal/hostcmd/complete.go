package hostcmd

import (
	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// Complete lists the addresses of the functions that a command is for: unbind takes
// what VFIO has, bind what it does not have, others both.
func Complete(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	root := "/"
	if f := c.Flag("root"); f != nil {
		root = f.Value.String()
	}
	// What can be read is offered.
	functions, _ := hostpci.AllFunctions(hostpci.Root(root))
	hostpci.Fit(functions, drivers)
	var list []cobra.Completion
	for _, f := range functions {
		bound := hostpci.IsVFIO(f.Driver)
		switch {
		case c.Name() == "unbind" && !bound, c.Name() == "bind" && bound:
		case f.Class>>16 == hostpci.ClassNetwork, f.Fits != "", bound:
			list = append(list, cobra.CompletionWithDesc(f.Address, f.Driver))
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}
