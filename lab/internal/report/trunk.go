package report

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
)

// Shared sums one sender of a trunk up, under a policy.
type Shared struct {
	Policy string `json:"policy"`
	Number int    `json:"sender" help:"from 0; the first has the slow bus"`
	virtual.Sender
}

// onTrunk runs a case's stream from each sender of a trunk.
func (c Case) onTrunk(ctx context.Context) (*virtual.Result, error) {
	plan, err := c.Plan(ctx)
	if err != nil {
		return nil, err
	}
	o := c.lone(plan)
	o.Count, o.Gap, o.Random, o.Log, o.Trunk = c.Count, c.Gap, c.Random, c.Log, &c.Trunk
	return virtual.Run(ctx, o)
}

// OnTrunk says what each sender of a trunk comes to in each case.
func OnTrunk(cases []Case, ctx context.Context) ([]Shared, error) {
	var rows []Shared
	for _, c := range cases {
		r, err := c.onTrunk(ctx)
		if err != nil {
			return nil, err
		}
		for i, s := range r.Senders {
			rows = append(rows, Shared{c.Policy, i, s})
		}
	}
	return rows, nil
}

// Trunks draws the senders' engines, and who holds the trunk.
func (c Case) Trunks(ctx context.Context) ([]byte, error) {
	t := c.Trunk
	c.Log = true
	r, err := c.onTrunk(ctx)
	if err != nil {
		return nil, err
	}
	b := plot.Bands{
		Title:  fmt.Sprintf("Trunk: %s, %s", c.Profile.Name, c.Policy),
		Note:   fmt.Sprintf("%d senders of %d payloads of %d bytes each", t.Senders, c.Count, c.Payload),
		Legend: "One stripe is one transfer, and its number that of the payload; on the trunk it is a packet, and the number that of its sender.",
	}
	for i := range t.Senders {
		for _, e := range []dmalog.Engine{dmalog.HostTx, dmalog.NetTx} {
			b.Names = append(b.Names, fmt.Sprintf("%d: %v", i, e))
		}
	}
	b.Names = append(b.Names, "trunk")
	for _, l := range r.Log {
		if l.Engine == dmalog.HostTx || l.Engine == dmalog.NetTx {
			b.Stripes = append(b.Stripes, plot.Stripe{Band: 2*l.Flow + int(l.Engine), Number: l.Packet, Start: l.Start, End: l.End})
		}
	}
	for _, h := range r.Holds {
		b.Stripes = append(b.Stripes, plot.Stripe{Band: 2 * t.Senders, Number: h.Flow, Start: int64(h.Start), End: int64(h.End)})
	}
	return b.SVG()
}
