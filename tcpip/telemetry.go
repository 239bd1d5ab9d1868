package tcpip

import (
	"context"
	"log/slog"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/capture"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// shown are the counters that other programs see.
type shown struct {
	Link *Counters      `json:"link"`
	TCP  tcpCounters    `json:"tcp"`
	Port ethernet.Stats `json:"port"`
}

type tcpCounters struct {
	Established   uint64 `json:"established" help:"Connections that are established." kind:"gauge" unit:"connections"`
	Opened        uint64 `json:"opened" help:"Connections that this host has opened." unit:"connections"`
	Accepted      uint64 `json:"accepted" help:"Connections that other hosts have opened." unit:"connections"`
	Retransmitted uint64 `json:"retransmitted" help:"Segments that were sent again." unit:"segments"`
	Invalid       uint64 `json:"invalid" help:"Received segments with a bad header or checksum." unit:"segments"`
}

// show registers the port of a stack with the telemetry of this process. The NIC under a ring shows itself.
func (s *Stack) show() (leave func()) {
	l, p, address := s.link, s.port, telemetry.Public(s.address)
	return telemetry.Register(&telemetry.Source{Address: address,
		Port: func() (telemetry.Port, error) {
			link, err := p.Link()
			c, info := &l.stats, p.Info()
			return telemetry.Port{Name: address, MAC: p.MAC().String(), MTU: int(l.mtu), Queues: info.Options.Queues, LinkUp: link.Up,
				Received: c.Received.Load(), ReceivedBytes: c.ReceivedBytes.Load(), Sent: c.Sent.Load(), SentBytes: c.SentBytes.Load(),
				ReceiveErrors: c.Malformed.Load(), SendErrors: c.NoBuffer.Load() + c.RingFull.Load() + c.TooLong.Load()}, err
		},
		Stats: func() (any, error) {
			t := s.s.Stats().TCP
			return shown{&l.stats, tcpCounters{t.CurrentEstablished.Value(), t.ActiveConnectionOpenings.Value(), t.PassiveConnectionOpenings.Value(),
				t.Retransmits.Value(), t.InvalidSegmentsReceived.Value() + t.ChecksumErrors.Value()}, p.Stats()}, nil
		},
		Commands: []telemetry.Command{{Name: "capture", Help: capture.Help, Run: func(_ context.Context, snaplen []uint64) (any, error) {
			return l.captured.Lend(l, int(snaplen[0]), slog.Default())
		}}},
	}, telemetry.Options{})
}

// Watch implements capture.Watchable.
func (l *link) Watch(show func(sent bool, frame []byte)) bool {
	l.watching.Lock()
	defer l.watching.Unlock()
	if show != nil && l.watch != nil {
		return false
	}
	l.watch = show
	l.watched.Store(show != nil)
	return true
}

// seen shows a frame to a program that captures.
func (l *link) seen(sent bool, frame []byte) {
	if !l.watched.Load() {
		return
	}
	l.watching.Lock()
	defer l.watching.Unlock()
	if l.watch != nil {
		l.watch(sent, frame)
	}
}
