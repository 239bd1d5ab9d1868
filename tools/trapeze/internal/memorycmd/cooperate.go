package memorycmd

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/via"
)

// coopReport is printed by cooperate --json.
type coopReport struct {
	Page    int          `json:"page_bytes"`
	Bytes   int64        `json:"bytes" help:"that are lent by the servers"`
	Cache   int64        `json:"cache_bytes"`
	Reads   coopReads    `json:"reads"`
	Digest  string       `json:"digest,omitempty" help:"SHA-256 of all pages, read in order after the random reads"`
	Counts  netmem.Stats `json:"counts" help:"of the whole run"`
	Clients []coopPeer   `json:"clients"`
	// Incomplete says why it ended before everything was read.
	Incomplete string `json:"incomplete,omitempty"`
}

// coopReads are reads of pages at random, after each was read once.
type coopReads struct {
	Count   int64   `json:"count"`
	Seconds float64 `json:"seconds"`
	Own     int64   `json:"own" help:"from this client's cache"`
	Clients uint64  `json:"from_clients" help:"from another client's"`
	Servers int64   `json:"from_servers"`
	Ratio   float64 `json:"hit_ratio" help:"of those that no server was asked for a page"`
	P50     float64 `json:"server_p50_us" help:"of all misses of the run, where no other clients are named"`
	P99     float64 `json:"server_p99_us"`
	NearP50 float64 `json:"client_p50_us" help:"of all pages of the run that came from another client"`
	NearP99 float64 `json:"client_p99_us"`
}

// coopPeer is another client.
type coopPeer struct {
	netmem.HostState
	Error string `json:"error,omitempty"`
}

type coopFlags struct {
	clientFlags
	shareFlags
	Reads int `flag:"reads" help:"how many pages to read at random (default none: only lend)"`
}

func (x *commands) cooperate(ctx context.Context, f *coopFlags, _ []string) error {
	servers, err := f.addresses()
	if err != nil {
		return err
	}
	o := netmem.Options{Cache: int64(f.Cache), ReadAhead: -1, Timeout: f.Timeout}
	switch {
	case f.Reads < 0:
		return &option.Error{Option: "--reads", Value: fmt.Sprint(f.Reads), Allowed: "0 or more"}
	case f.Name == "" && f.Reads == 0:
		return &option.Error{Option: "--name", Allowed: "a name, as this client does nothing without it or --reads"}
	}
	if o.Cooperation, err = f.cooperation(); err != nil {
		return err
	}
	if err := peer.CheckDevice(f.Device); err != nil {
		return err
	}
	return with(ctx, f.Device, func(nic *via.NIC) error {
		c, err := netmem.Open(ctx, nic, servers, o)
		if err != nil {
			return openError(err)
		}
		r := coopReport{Page: c.Page(), Bytes: c.Size(), Cache: int64(f.Cache), Clients: []coopPeer{}}
		if f.Reads > 0 {
			err = x.readTogether(ctx, c, f, &r)
		} else {
			x.Note("lending %s to other clients as %s", option.Bytes(f.Cache), f.Name)
			<-ctx.Done()
		}
		r.count(c.Stats())
		if cerr := c.Close(); err == nil {
			err = cerr
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err != nil {
			r.Incomplete = err.Error()
		}
		if perr := x.Print(r, func(w io.Writer) error { return printCoop(w, r) }); err == nil {
			err = perr
		}
		return err
	})
}

// readTogether reads all pages, then so many at random, then all again.
func (x *commands) readTogether(ctx context.Context, c *netmem.Client, f *coopFlags, r *coopReport) error {
	pages := c.Size() / int64(c.Page())
	meter := x.Meter("reading pages", (2*pages+int64(f.Reads))*int64(c.Page()))
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
	for i := 0; i < f.Reads && err == nil; i++ {
		if err = read(random.Int64N(pages)); err == nil {
			r.Reads.Count++
		}
	}
	after := c.Stats()
	r.Reads.Seconds = time.Since(start).Seconds()
	r.Reads.Own, r.Reads.Clients = int64(after.Hits-before.Hits), after.FromHosts-before.FromHosts
	r.Reads.Servers = int64(after.Misses-before.Misses) - int64(r.Reads.Clients)
	if r.Reads.Count > 0 {
		r.Reads.Ratio = 1 - float64(r.Reads.Servers)/float64(r.Reads.Count)
	}
	if err != nil {
		return err
	}
	sum := sha256.New()
	for page := range pages {
		if err := read(page); err != nil {
			return err
		}
		sum.Write(b) // it never fails
	}
	r.Digest = fmt.Sprintf("%x", sum.Sum(nil))
	return nil
}

// awaitClients waits until all other clients are connected, and have been asked for their ages. It goes on
// without those that are not there in time.
func awaitClients(ctx context.Context, c *netmem.Client, timeout time.Duration) error {
	away := func(h netmem.HostState) bool { return !h.Connected }
	if len(c.Stats().Hosts) == 0 {
		return nil
	}
	for end := time.Now().Add(timeout); slices.ContainsFunc(c.Stats().Hosts, away) && time.Now().Before(end); {
		if err := command.Pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return command.Pause(ctx, 300*time.Millisecond)
}

// count takes over what the client has counted.
func (r *coopReport) count(s netmem.Stats) {
	r.Counts = s
	if s.FromHosts == 0 {
		r.Reads.P50, r.Reads.P99 = units.Microseconds(s.Median), units.Microseconds(s.P99)
	}
	r.Reads.NearP50, r.Reads.NearP99 = units.Microseconds(s.HostMedian), units.Microseconds(s.HostP99)
	for _, h := range s.Hosts {
		p := coopPeer{HostState: h}
		if h.Err != nil {
			p.Error = h.Err.Error()
		}
		r.Clients = append(r.Clients, p)
	}
}

func printCoop(w io.Writer, r coopReport) error {
	if n := r.Reads; n.Count > 0 {
		fmt.Fprintf(w, "read %d pages of %s at random in %.2f s: %d from the own cache, %d from other clients, %d from servers; hit ratio %.3f\n",
			n.Count, option.Bytes(r.Page), n.Seconds, n.Own, n.Clients, n.Servers, n.Ratio)
	}
	fmt.Fprintf(w, "sent %d pages to other clients, %d were there already, %d were discarded; gave %d, keeps %d\n",
		r.Counts.Sent, r.Counts.Duplicates, r.Counts.Discarded, r.Counts.Given, r.Counts.Kept)
	for _, p := range r.Clients {
		fmt.Fprintf(w, "  %s: %d hits, %d missing, %d wrong, %d sent, %d refused\n", p.Address, p.Hits, p.Missing, p.Wrong, p.Sent, p.Refused)
		if p.Error != "" {
			fmt.Fprintf(w, "    %s\n", p.Error)
		}
	}
	var err error
	if r.Incomplete != "" {
		_, err = fmt.Fprintf(w, "Incomplete, it ended early: %s\n", r.Incomplete)
	}
	return err
}
