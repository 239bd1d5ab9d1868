package shell

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
)

// versionReport is the JSON of the command version.
type versionReport struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Modified bool   `json:"modified" help:"not all is in the commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (r *run) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Which " + r.Name + " this is",
		Long: `Which ` + r.Name + ` this is: version of the module, commit that it was built from, version
of Go, platform.

` + keys.Of(versionReport{}),
		Example: "  " + r.Name + " version\n  " + r.Name + " version --json",
		Args:    cobra.NoArgs,
		RunE:    command.Run(func(context.Context, []string) error { return r.printVersion() }),
	}
}

func (r *run) printVersion() error {
	v := buildVersion()
	if r.JSON {
		return r.PrintJSON(v)
	}
	revision := ""
	if v.Revision != "" {
		revision = ", commit " + v.Revision
		if v.Modified {
			revision += " and changes"
		}
	}
	_, err := fmt.Fprintf(r.Stdout, "%s %s%s, %s, %s\n", r.Name, v.Version, revision, v.Go, v.Platform)
	return err
}

// buildVersion returns what the linker has recorded.
func buildVersion() versionReport {
	r := versionReport{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return r
	}
	if info.Main.Version != "" {
		r.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			r.Revision = s.Value
		case "vcs.modified":
			r.Modified = s.Value == "true"
		}
	}
	return r
}
