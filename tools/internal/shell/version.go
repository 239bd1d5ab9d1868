package shell

import (
	"context"
	"fmt"
	"io"
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
	Date     string `json:"date" help:"of the commit, RFC 3339"`
	Go       string `json:"go"`
	Platform string `json:"platform"`

	Modules []moduleReport `json:"modules"`
}

// moduleReport is a module that the program was linked with.
type moduleReport struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	Sum     string `json:"sum" help:"as in go.sum"`
}

func (r *run) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Which " + r.Name + " this is",
		Long: `Which ` + r.Name + ` this is: version of the module, commit that it was built from and its
date, version of Go, platform, and on lines of their own the modules of others in it.

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
		if v.Date != "" {
			revision += " of " + v.Date
		}
		if v.Modified {
			revision += " and changes"
		}
	}
	text := fmt.Sprintf("%s %s%s, %s, %s\n", r.Name, v.Version, revision, v.Go, v.Platform)
	for _, m := range v.Modules {
		text += fmt.Sprintf("    %s %s\n", m.Path, m.Version)
	}
	_, err := io.WriteString(r.Stdout, text)
	return err
}

// buildVersion returns what the linker has recorded.
func buildVersion() versionReport {
	r := versionReport{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Modules: []moduleReport{}}
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
		case "vcs.time":
			r.Date = s.Value
		}
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		r.Modules = append(r.Modules, moduleReport{m.Path, m.Version, m.Sum})
	}
	return r
}
