package modelcmd

import (
	"context"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

// fetchFlags describe one fetch of a page.
type fetchFlags struct {
	loneFlags
	Server float64 `flag:"server-us" range:"0..1000000" help:"microseconds that the server takes between the request and the page"`
}

// measured checks the flags and loads the profile.
func (f *fetchFlags) measured() (c report.Case, err error) {
	c, err = f.loneFlags.measured()
	c.Server = profile.Micros(f.Server)
	return c, err
}

// fetched is the JSON object of "trapeze-lab model fetch". In its transfers, packets of flow 1
// are requests, and their bytes those of the control message.
type fetched struct {
	*report.Fetch
	Transfers transfers `json:"transfers" text:"flat"`
}

func fetch(c report.Case, ctx context.Context) (fetched, error) {
	r, err := c.Fetch(ctx)
	if err != nil {
		return fetched{}, err
	}
	return fetched{r, transfersOf(r.Log)}, nil
}
