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

// grantsOf returns the grant by which a program may have a NIC, any if nic is empty: the first of the file that fits.
// A program with claims has one for each claim, which narrows the first that fits.
func (a *Agent) grantsOf(who *identity, nic string) []*Grant {
	claims, err := agentlink.ReadClaims(a.config.Claims)
	if err != nil {
		a.log.Error("claims cannot be used", "error", err)
	}
	var narrowed []*Grant
	claimed := false
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		c := claims[name]
		if !slices.ContainsFunc(c.Cgroups, func(path string) bool { return within(who.cgroup, path) }) {
			continue
		}
		claimed = true
		if g := a.config.first(who, c.NIC, true); g != nil {
			narrowed = append(narrowed, g.narrow(name, c))
		}
	}
	if g := a.config.first(who, nic, false); !claimed && g != nil {
		return []*Grant{g}
	}
	return narrowed
}

// first returns the first grant that fits a program and a NIC, nil if there is none.
func (c *Config) first(who *identity, nic string, claimed bool) *Grant {
	for _, g := range c.Grants {
		if g.fits(who) && (nic == "" || g.grants(nic)) && (claimed || !g.Claimed) {
			return g
		}
	}
	return nil
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
				_ = c.conn.UnixConn.CloseRead() // attend takes it for the client's end
			}
		}
	}
}
