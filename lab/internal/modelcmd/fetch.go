package modelcmd

import (
	"context"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

// fetchFlags describe one fetch of a page.
type fetchFlags struct {
	loneFlags
	Server float64 `flag:"server-us" help:"microseconds that the server takes between the request and the page"`
}

// measured checks the flags and loads the profile.
func (f *fetchFlags) measured() (report.Case, profile.Time, error) {
	if err := between("--server-us", f.Server, 0, maxGap, ""); err != nil {
		return report.Case{}, 0, err
	}
	c, err := f.loneFlags.measured()
	return c, profile.Micros(f.Server), err
}

// fetched is the JSON object of "trapeze-lab model fetch". In its transfers, packets of flow 1
// are requests, and their bytes those of the control message.
type fetched struct {
	*report.Fetch
	Transfers transfers `json:"transfers"`
}

func (x *commands) fetch(ctx context.Context, f *fetchFlags, _ []string) error {
	c, server, err := f.measured()
	if err != nil {
		return err
	}
	r, err := c.Fetch(ctx, server)
	if err != nil {
		return err
	}
	return x.Printf(fetched{r, transfersOf(r.Log)}, `%s, %s, a page of %d bytes
request            %10.3f us   one way
server             %10.3f us
page               %10.3f us   one way
fetch              %10.3f us
`, c.Profile.Name, c.Policy, c.Payload, r.Request.Microseconds(), server.Microseconds(), r.Page.Microseconds(), r.Whole.Microseconds())
}

// draw draws the request and the page.
func (f *fetchFlags) draw(ctx context.Context) ([]byte, error) {
	c, server, err := f.measured()
	if err != nil {
		return nil, err
	}
	return report.FetchGraph(ctx, c, server)
}
