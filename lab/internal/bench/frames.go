package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/wire"
)

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
