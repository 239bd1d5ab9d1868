package bench

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// fetched holds what the server of pages lends, in bytes: more than the caches next to a core hold.
const fetched = 4 << 20

// awake has waits look again and again for longer than a fetch takes, as the peers' do.
var awake = via.Waiting{Spin: 10 * time.Millisecond}

// openFetch makes a server of pages, or a client that fetches one after the other, past the cache.
func (p *part) openFetch(ctx context.Context) (func(*Side) error, error) {
	nic, err := p.openNIC(ctx, p.Address)
	if err != nil {
		return nil, err
	}
	if p.Role == Echo {
		s, err := netmem.NewServer(ctx, nic, netmem.ServerOptions{Page: p.Bytes, Size: fetched})
		if err != nil {
			return nil, err
		}
		p.later(s.Close)
		p.ready()
		return func(*Side) error {
			select {
			case <-ctx.Done():
			case <-s.Done():
			}
			return s.Err()
		}, nil
	}
	o := netmem.Options{Cache: 1 << 20, ReadAhead: -1}
	c, err := netmem.Open(ctx, nic, []string{"ff:ff:ff:ff:ff:ff/" + netmem.DefaultName}, o)
	if err != nil {
		return nil, err
	}
	p.later(c.Close)
	_, err = c.WriteAt(make([]byte, fetched), 0)
	if err := errors.Join(err, c.Sync()); err != nil {
		return nil, err
	}
	m, err := nic.Alloc(ctx, p.Bytes, via.MemoryAttributes{})
	if err != nil {
		return nil, err
	}
	p.ready()
	frame, pages := ring.Frame{Memory: m, Length: p.Bytes}, fetched/p.Bytes
	return func(side *Side) error {
		return p.timed(side, func(i int) error {
			if i%pages == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			_, err := c.Fetch(context.Background(), uint64(i%pages), frame)
			return err
		})
	}, nil
}
