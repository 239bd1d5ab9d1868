package modelcmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

// fetchFlags describe one fetch of a page.
type fetchFlags struct {
	caseFlags
	server float64
}

func (f *fetchFlags) register(cmd *cobra.Command) {
	f.registerLone(cmd)
	cmd.Flags().Float64Var(&f.server, "server-us", 0, "microseconds that the server takes between the request and the page")
}

// measured checks the flags and loads the profile.
func (f *fetchFlags) measured() (report.Case, profile.Time, error) {
	if err := between("--server-us", f.server, 0, maxGap, ""); err != nil {
		return report.Case{}, 0, err
	}
	c, err := f.caseFlags.measured()
	return c, profile.Micros(f.server), err
}

// fetched is the JSON object of "trapeze-lab model fetch". In its transfers, packets of flow 1
// are requests, and their bytes those of the control message.
type fetched struct {
	Fetch     profile.Time `json:"fetch_us"`
	Request   profile.Time `json:"request_us"`
	Page      profile.Time `json:"page_us"`
	Transfers transfers    `json:"transfers"`
	of        *report.Case
	server    profile.Time
}

func fetchCommand(e *command.Env) *cobra.Command {
	var f fetchFlags
	cmd := &cobra.Command{
		Use:   "fetch",
		Short: "Compute how long a page takes that is fetched from another machine's memory",
		Long: `Computes, in virtual time, how long a page takes that is fetched from another
machine's memory: a request, which is a control message without payload, and the page as
the payload of the reply, on an idle system. The page goes from the platform's sender to
its receiver.

request_us  one way, from asking until the server's program has the request
page_us     one way, from sending the page until the asking program has it
fetch_us    both, and --server-us between them

The page fault, and looking for the page, are the programs' own: --server-us and the
platform's cost of a host, of which a request and a reply have one each.

` + keys.Of(fetched{}),
		Example: `  trapeze-lab model fetch --profile alcor --policy eager --payload 8192
  trapeze-lab model fetch --profile pcie4-x16-100g --payload 4096 --server-us 1.5 --json`,
		Args: cobra.NoArgs,
		RunE: command.Show(e, func(ctx context.Context) (fetched, error) {
			c, server, err := f.measured()
			if err != nil {
				return fetched{}, err
			}
			r, err := c.Fetch(ctx, server)
			if err != nil {
				return fetched{}, err
			}
			return fetched{Fetch: r.Whole, Request: r.Request, Page: r.Page, Transfers: transfersOf(r.Log), of: &c, server: server}, nil
		}, func(w io.Writer, r fetched) error {
			_, err := fmt.Fprintf(w, `%s, %s, a page of %d bytes
request            %10.3f us   one way
server             %10.3f us
page               %10.3f us   one way
fetch              %10.3f us
`, r.of.Profile.Name, r.of.Policy, r.of.Payload, r.Request.Microseconds(), r.server.Microseconds(), r.Page.Microseconds(), r.Fetch.Microseconds())
			return err
		}),
	}
	f.register(cmd)
	return cmd
}

// fetchPicture draws the request and the page.
func fetchPicture(e *command.Env) *cobra.Command {
	var f fetchFlags
	cmd := picture(e, "fetch", "Packet flow graph of a page that is fetched: the request and the page",
		"--profile alcor --policy eager", func(ctx context.Context) ([]byte, error) {
			c, server, err := f.measured()
			if err != nil {
				return nil, err
			}
			return report.FetchGraph(ctx, c, server)
		})
	f.register(cmd)
	return cmd
}
