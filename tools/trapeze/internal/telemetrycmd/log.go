package telemetrycmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// logReport is printed by log --json.
type logReport struct {
	Transfers []logged `json:"transfers"`
	Lost      uint32   `json:"lost" help:"for which the log had no room"`
}

// logged is a transfer.
type logged struct {
	Packet int64  `json:"packet" help:"with payload, of its direction"`
	Engine string `json:"engine"`
	Start  int64  `json:"start_ns" help:"of the NIC's clock"`
	End    int64  `json:"end_ns"`
	Bytes  int64  `json:"bytes"`
}

// logPause is the time from one look at an empty log to the next.
const logPause = 20 * time.Millisecond

type logFlags struct {
	Count int `flag:"count,c" range:"1..1048576" help:"end after so many transfers (default when interrupted)"`
}

func (x *commands) log(ctx context.Context, f *logFlags, args []string) error {
	count := f.Count
	if count == 0 && x.JSON {
		return option.Errorf("--json needs --count: it prints one value, at the end")
	}
	h := x.look(ctx, word(args))
	defer h.close()
	n, err := h.one(word(args))
	if err != nil {
		return err
	}
	r := logReport{Transfers: []logged{}}
	for seen := 0; count == 0 || seen < count; {
		var t telemetry.Transfers
		if err := n.ask(ctx, "/trapeze/log", &t); err != nil {
			return explainLog(ctx, n, err)
		}
		r.Lost = t.Lost
		for _, record := range t.Records {
			if seen++; count > 0 && seen > count {
				break
			}
			l := logged{record[0], dmalog.Engine(record[1]).String(), record[2], record[3], record[4]}
			if x.JSON {
				r.Transfers = append(r.Transfers, l)
			} else if _, err := fmt.Fprintf(x.Stdout, "%12.3f us  %-7s packet %-6d %6d B in %.3f us\n",
				float64(l.Start)/1e3, l.Engine, l.Packet, l.Bytes, float64(l.End-l.Start)/1e3); err != nil {
				return err
			}
		}
		if len(t.Records) == 0 && pause.For(ctx, logPause) != nil {
			return nil
		}
	}
	return x.Print(r, func(io.Writer) error { return nil })
}

// explainLog says what may be the reason of no answer. The command is meant to end by an
// interrupt.
func explainLog(ctx context.Context, n *NIC, err error) error {
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return fmt.Errorf("%w: process %d, which had %s", ErrOwnerLost, n.PID, n.Address)
	case errors.Is(err, telemetry.ErrNoAnswer):
		return fmt.Errorf("%w: the NIC keeps no log, its process keeps one itself, or the NIC is gone", err)
	}
	return err
}
