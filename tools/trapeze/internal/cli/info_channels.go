package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/via"
)

// inspectChannels returns nil for a device that is too old to say. It is asked also when ctx has
// ended, for the last report.
func inspectChannels(ctx context.Context, nic *via.NIC) (*telemetry.Channels, error) {
	r, err := nic.Driver().Report(context.WithoutCancel(ctx))
	return r.Channels, err
}

// printChannels has the lines below those of another report, if there is anything to say.
func printChannels(w io.Writer, c *telemetry.Channels) (err error) {
	if c.Used() {
		for _, line := range c.Lines() {
			_, err = fmt.Fprintf(w, "NIC: %s\n", line)
		}
	}
	return err
}
