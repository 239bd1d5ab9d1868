package netmem

import (
	"context"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/netmem/internal/placement"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// TestNext: a client takes out a server that it does not reach, but leaves each page a member that it reaches, and lets in
// a server that has restarted or is back.
func TestNext(t *testing.T) {
	const nothing, first, last = -1, 0, 2
	names := []string{"a", "b", "c"}
	for what, c := range map[string]struct {
		// servers has a letter for each: a member that answers (m), is away (a) or has restarted (r), and one that
		// the pool goes on without and that answers (o).
		servers       string
		goes, closing bool // the second server goes while the first is asked, and the client is being closed
		changes       int  // the server that is another process in the next configuration
		in            bool // it is let in
	}{
		"all are here":             {servers: "mmm", changes: nothing},
		"one is away":              {servers: "amm", changes: first},
		"two are away":             {servers: "aam", changes: nothing},
		"one is away, one is out":  {servers: "oam", changes: first, in: true},
		"one is away, one is new":  {servers: "amr", changes: last, in: true},
		"one goes while one is in": {servers: "omm", goes: true, changes: nothing},
		"the client is closed":     {servers: "amm", closing: true, changes: nothing},
	} {
		t.Run(what, func(t *testing.T) {
			d := newDirect(t, names...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := &pool{options: Options{Copies: 2, Timeout: time.Millisecond}}
			v := &view{Configuration: placement.Configuration{Pool: 1, Epoch: 1, Copies: 2}}
			for i, state := range c.servers {
				k := &link{keeper: newKeeper(), pool: p, address: addressOf(names[i]), number: i}
				p.links = append(p.links, k)
				l, _ := must.Two(dialLine(ctx, d, k.address, time.Minute))(t)
				s := placement.Server{Incarnation: l.incarnation, Since: 1}
				k.now.Store(l)
				switch state {
				case 'a':
					k.now.Store(nil)
				case 'r':
					s.Incarnation++
				case 'o':
					s.Incarnation = 0
				}
				v.Servers = append(v.Servers, s)
			}
			d.setLoss(func(string, *protocol.Request, func()) bool {
				if c.goes {
					k := p.links[1]
					_ = k.down(k.now.Load(), ring.ErrPeerGone)
					time.Sleep(2 * p.options.Timeout)
				}
				return c.goes
			})
			if c.closing {
				cancel()
			}
			next, needed := p.next(ctx, v)
			changed := nothing
			for i, s := range next.Servers {
				if s.Incarnation != v.Servers[i].Incarnation {
					changed = i
				}
			}
			if needed != (c.changes != nothing) || changed != c.changes || needed && next.Servers[changed].Present() != c.in {
				t.Errorf("the next configuration is %s, %v", next.Encode(), needed)
			}
		})
	}
}
