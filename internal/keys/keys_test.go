package keys_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/keys"
)

type counts struct {
	Sent int `json:"sent"`
	Lost int `json:"lost" help:"never acknowledged"`
}

type tree struct {
	Name  string `json:"name"`
	Below []tree `json:"below,omitempty"`
}

func TestOf(t *testing.T) {
	for want, report := range map[string]any{
		"JSON keys: .": struct{}{},
		"JSON keys: Plain, renamed (of the file), at.": struct {
			Plain   string
			Renamed string `json:"renamed,omitempty" help:"of the file"`
			Hidden  int    `json:"-"`
			_       int
			At      time.Time `json:"at"`
		}{},
		"JSON keys: sent, lost (never acknowledged), of (of each: sent, lost (never acknowledged)), all (as of).": struct {
			counts
			Of  []*counts         `json:"of" help:"of each"`
			All map[string]counts `json:"all"`
		}{},
		"JSON keys: name, below (as the whole).": tree{},
	} {
		if got := keys.Of(report); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
