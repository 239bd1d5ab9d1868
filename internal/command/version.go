package command

import (
	"runtime"
	"runtime/debug"
)

// Build is what a program was built from, the JSON of the command version.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Date     string `json:"date"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (v Build) String() string {
	s := v.Version + ", " + v.Go + ", " + v.Platform
	if v.Revision != "" {
		s += ", commit " + v.Revision + " of " + v.Date
	}
	if v.Modified {
		s += " and changes"
	}
	return s
}

// Built returns what the linker has recorded of this program.
func Built() Build {
	r := Build{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return r
	}
	r.Version = info.Main.Version
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
	return r
}
