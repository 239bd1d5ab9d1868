package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
)

// The agent looks each claimLook whether claims of its clients were withdrawn.
const claimLook = time.Second

// grantsOf returns the grants by which a program may have NICs. Those of a program with claims are
// the file's, narrowed by each claim.
func (a *Agent) grantsOf(who *identity) []*Grant {
	claims, err := agentlink.ReadClaims(a.config.Claims)
	if err != nil {
		a.log.Error("claims cannot be used", "error", err)
	}
	var narrowed, plain []*Grant
	claimed := false
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		c := claims[name]
		if !slices.ContainsFunc(c.Cgroups, func(path string) bool { return within(who.cgroup, path) }) {
			continue
		}
		claimed = true
		for _, g := range a.config.Grants {
			if g.fits(who) && g.grants(c.NIC) {
				narrowed = append(narrowed, g.narrow(name, c))
			}
		}
	}
	if claimed {
		return narrowed
	}
	for _, g := range a.config.Grants {
		if g.fits(who) && !g.Claimed {
			plain = append(plain, g)
		}
	}
	return plain
}

// narrow is the part of a grant that a claim leaves: one NIC at a time.
func (g *Grant) narrow(name string, c agentlink.Claim) *Grant {
	n := *g
	n.Name, n.Claim, n.NICs, n.Clients = "claim "+name, name, []string{c.NIC}, 1
	if c.VIs != 0 {
		n.VIs = min(n.VIs, c.VIs)
	}
	if c.Memory != 0 && (n.Memory == 0 || c.Memory < n.Memory) {
		n.Memory = c.Memory
	}
	if c.Rate != 0 {
		n.Direct = false // such frames do not pass the agent
		if n.Rate == 0 || c.Rate < n.Rate {
			n.Rate = c.Rate
		}
	}
	return &n
}

// withdraw has clients leave whose claims were withdrawn, until ctx ends.
func (a *Agent) withdraw(ctx context.Context) {
	tick := time.NewTicker(claimLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		held := slices.DeleteFunc(a.all(), func(c *client) bool { return c.grant.Claim == "" })
		if len(held) == 0 {
			continue
		}
		claims, err := agentlink.ReadClaims(a.config.Claims)
		for _, c := range held {
			if _, there := claims[c.grant.Claim]; !there && err == nil {
				a.log.Info("a claim was withdrawn", "claim", c.grant.Claim, "pid", c.who.pid)
				_ = c.conn.Socket().CloseRead() // attend takes it for the client's end
			}
		}
	}
}
