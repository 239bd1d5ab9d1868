package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
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

// framesBurst is the number of frames that go out with one Flush: as many as testpmd sends and
// receives at a time.
const framesBurst = 32

// openFrames makes one end of a memif with no NIC on top: what dpdk-testpmd does as txonly and rxonly. The
// echo receives, and ends first; the source does when the echo has gone.
func (p *part) openFrames(ctx context.Context) (func(*Side) error, error) {
	socket, _, _ := strings.Cut(strings.TrimPrefix(p.Address, "emu:?wire=memif:"), "&")
	role := wire.MemifServer
	if p.Role == Source {
		role = wire.MemifClient
	}
	m, err := wire.NewMemif(wire.MemifOptions{Socket: socket, Role: role, Polling: true})
	if err != nil {
		return nil, err
	}
	p.later(m.Close)
	p.ready()
	frame := make([]byte, p.Bytes)
	return func(side *Side) error {
		if err := await(ctx, m.LinkUp); err != nil {
			return err
		}
		if p.Role == Source {
			return p.counted(side, func() (uint64, error) { return sendFrames(ctx, m, frame) })
		}
		return p.stream(side, func(d time.Duration) (uint64, error) { return receiveFrames(ctx, m, frame, d) })
	}, nil
}

// sendFrames copies frames from a buffer, as an application would, until the receiver has gone.
func sendFrames(ctx context.Context, m *wire.Memif, frame []byte) (n uint64, err error) {
	for rounds := 0; m.LinkUp(); rounds++ {
		if rounds%checkEvery == 0 && ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		for range framesBurst {
			b := m.Reserve(len(frame))
			if b == nil {
				break
			}
			copy(b, frame)
			m.Commit()
			n++
		}
		m.Flush()
	}
	return n, nil
}

// receiveFrames copies frames into a buffer for some time.
func receiveFrames(ctx context.Context, m *wire.Memif, frame []byte, d time.Duration) (n uint64, err error) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		for range checkEvery {
			b := m.Receive()
			if b == nil {
				continue
			}
			if copy(frame, b) != len(frame) || len(b) != len(frame) {
				return n, fmt.Errorf("a frame of %d bytes came, and not of %d", len(b), len(frame))
			}
			m.Release()
			n++
		}
	}
	return n, nil
}

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
