package memorycmd

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// coopReport is printed by cooperate --json.
type coopReport struct {
	Page    int                `json:"page_bytes"`
	Bytes   int64              `json:"bytes" help:"that are lent by the servers"`
	Cache   int64              `json:"cache_bytes"`
	Reads   coopReads          `json:"reads"`
	Counts  netmem.Stats       `json:"counts" help:"of the whole run; times are in nanoseconds"`
	Clients []netmem.HostState `json:"clients"`
}

// coopReads are reads of pages at random, after each was read once.
type coopReads struct {
	Count   int64   `json:"count"`
	Seconds float64 `json:"seconds"`
	Own     int64   `json:"own" help:"from this client's cache"`
	Clients int64   `json:"from_clients" help:"from another client's"`
	Servers int64   `json:"from_servers"`
}

type coopFlags struct {
	clientFlags
	shareFlags
	Reads int `flag:"reads" range:"0.." help:"how many pages to read at random (default none: only lend)"`
}

func (x *commands) cooperate(ctx context.Context, f *coopFlags, _ []string) error {
	servers, err := f.addresses()
	if err != nil {
		return err
	}
	o := netmem.Options{Cache: int64(f.Cache), ReadAhead: -1, Timeout: f.Timeout}
	if f.Name == "" && f.Reads == 0 {
		return &option.Error{Option: "--name", Allowed: "a name, as this client does nothing without it or --reads"}
	}
	if o.Cooperation, err = f.cooperation(); err != nil {
		return err
	}
	return with(ctx, f.Device, func(nic *via.NIC) error {
		c, err := netmem.Open(ctx, nic, servers, o)
		if err != nil {
			return openError(err)
		}
		r := coopReport{Page: c.Page(), Bytes: c.Size(), Cache: int64(f.Cache)}
		if f.Reads > 0 {
			err = x.readTogether(ctx, c, f, &r)
		} else {
			x.Note("lending %s to other clients as %s", option.Bytes(f.Cache), f.Name)
			<-ctx.Done()
		}
		r.Counts = c.Stats()
		r.Clients = r.Counts.Hosts
		if cerr := c.Close(); err == nil {
			err = cerr
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		return errors.Join(err, x.Report(r)) // what was counted until the interrupt, too
	})
}

// readTogether reads all pages, then so many at random.
func (x *commands) readTogether(ctx context.Context, c *netmem.Client, f *coopFlags, r *coopReport) error {
	pages := c.Size() / int64(c.Page())
	meter := x.Meter("reading pages", (pages+int64(f.Reads))*int64(c.Page()))
	defer meter.Stop()
	b := make([]byte, c.Page())
	if err := awaitClients(ctx, c, f.Timeout); err != nil {
		return err
	}
	read := func(page int64) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		meter.Add(len(b))
		_, err := c.ReadAt(b, page*int64(len(b)))
		return err
	}
	for page := range pages {
		if err := read(page); err != nil {
			return err
		}
	}
	before, start := c.Stats(), time.Now()
	random := rand.New(rand.NewPCG(1997, 0)) // the same each time
	var err error
	for r.Reads.Count < int64(f.Reads) && err == nil {
		if err = read(random.Int64N(pages)); err == nil {
			r.Reads.Count++
		}
	}
	after := c.Stats()
	r.Reads.Seconds = time.Since(start).Seconds()
	r.Reads.Own, r.Reads.Clients = int64(after.Hits-before.Hits), int64(after.FromHosts-before.FromHosts)
	r.Reads.Servers = int64(after.Misses-before.Misses) - r.Reads.Clients
	return err
}

// awaitClients waits until all other clients are connected, and have been asked for their ages. It goes on
// without those that are not there in time.
func awaitClients(ctx context.Context, c *netmem.Client, timeout time.Duration) error {
	away := func(h netmem.HostState) bool { return !h.Connected }
	if len(c.Stats().Hosts) == 0 {
		return nil
	}
	for end := time.Now().Add(timeout); slices.ContainsFunc(c.Stats().Hosts, away) && time.Now().Before(end); {
		if err := pause.For(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return pause.For(ctx, 300*time.Millisecond)
}
