package cmdtable_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
)

type counts struct {
	Sent int `json:"sent"`
	Lost int `json:"lost" help:"never acknowledged"`
}

type tree struct {
	Name  string `json:"name"`
	Below []tree `json:"below,omitempty"`
}

func TestKeys(t *testing.T) {
	for want, report := range map[string]any{
		"": struct{}{},
		"Plain, renamed (of the file), at": struct {
			Plain   string
			Renamed string `json:"renamed,omitempty" help:"of the file"`
			Hidden  int    `json:"-"`
			_       int
			At      time.Time `json:"at"`
		}{},
		"sent, lost (never acknowledged), of (of each: sent, lost (never acknowledged)), all (as of)": struct {
			counts
			Of  []*counts         `json:"of" help:"of each"`
			All map[string]counts `json:"all"`
		}{},
		"name, below (as the whole)": tree{},
	} {
		should.Be(t, cmdtable.Keys(report), want)
	}
}
