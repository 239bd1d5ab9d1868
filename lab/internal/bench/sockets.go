package bench

import (
	"context"
	"io"
	"net"
	"strings"
	"time"
)

// fetchRequest is the length of a page's request over a socket in bytes.
const fetchRequest = 64

// openSocket makes one end of a socket of the kernel: an echo or a sink, which listens, or a source. A fetch is
// a request of fetchRequest bytes, and a reply.
func (p *part) openSocket(ctx context.Context) (func(*Side) error, error) {
	network, address, _ := strings.Cut(p.Address, ":")
	buf := make([]byte, max(p.Bytes, 1))
	request := buf
	if p.Test == Fetch {
		request = buf[:min(fetchRequest, len(buf))]
	}
	if p.Role == Echo {
		var config net.ListenConfig
		l, err := config.Listen(ctx, network, address)
		if err != nil {
			return nil, err
		}
		p.ready()
		return func(side *Side) error {
			defer context.AfterFunc(ctx, func() { _ = l.Close() })()
			c, err := l.Accept()
			if err != nil {
				return err
			}
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			return p.counted(side, func() (messages uint64, err error) {
				for ; err == nil; messages++ {
					if _, err = io.ReadFull(c, request); err == nil && p.Test != Bandwidth {
						_, err = c.Write(buf)
					}
				}
				return messages, ctx.Err() // else the source has ended
			})
		}, nil
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	p.later(c.Close)
	p.ready()
	return func(side *Side) error {
		stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
		defer stop()
		if p.Test == Bandwidth {
			return p.stream(side, func(d time.Duration) (n uint64, err error) {
				for end := time.Now().Add(d); err == nil && time.Now().Before(end); n++ {
					_, err = c.Write(buf)
				}
				return n, err
			})
		}
		return p.timed(side, func(int) error {
			if _, err := c.Write(request); err != nil {
				return err
			}
			_, err := io.ReadFull(c, buf)
			return err
		})
	}, nil
}
