package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
)

// versionReport is what version --json prints.
type versionReport struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (p *program) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Which trapeze this is",
		Long: `Which trapeze this is: version of the module, commit that it was built from, version
of Go, platform.

JSON keys: version, revision, modified (not all is in the commit), go, platform.`,
		Example: `  trapeze version
  trapeze version --json`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(context.Context, []string) error { return p.printVersion() }),
	}
}

func (p *program) printVersion() error {
	r := buildVersion()
	if p.JSON {
		return p.PrintJSON(r)
	}
	revision := ""
	if r.Revision != "" {
		revision = ", commit " + r.Revision
		if r.Modified {
			revision += " and changes"
		}
	}
	_, err := fmt.Fprintf(p.Stdout, "trapeze %s%s, %s, %s\n", r.Version, revision, r.Go, r.Platform)
	return err
}

// buildVersion is what the linker knows.
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
