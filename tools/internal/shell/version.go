package shell

import (
	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
)

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
