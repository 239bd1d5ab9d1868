package agent

import (
	"log/slog"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// nicStats counts what has passed a NIC of the agent.
type nicStats struct {
	Clients  uint64 `json:"clients" help:"Programs that have a share of the NIC." kind:"gauge" unit:"programs"`
	Received uint64 `json:"received" help:"Frames from the port." unit:"frames"`
	Unknown  uint64 `json:"unknown" help:"Frames from the port to a station that no client is." unit:"frames"`
	Sent     uint64 `json:"sent" help:"Frames of clients that are there." unit:"frames"`
	Bytes    uint64 `json:"bytes_sent" help:"Bytes of the frames of clients that are there." unit:"bytes"`
	Dropped  uint64 `json:"dropped" help:"Frames to clients that had no room for them." unit:"frames"`
	Refused  uint64 `json:"refused" help:"Frames of clients that a grant does not allow, or with the address of another." unit:"frames"`
}

// show registers the NICs with the telemetry of this process.
func (a *Agent) show(log *slog.Logger) (leave func()) {
	var all []func()
	for _, n := range a.nics {
		all = append(all, telemetry.Register(&telemetry.Source{Address: "agent:" + n.Name,
			Port: n.describe, Stats: func() (any, error) { s, _ := n.count(); return s, nil }}, telemetry.Options{Logger: log}))
	}
	return func() {
		for _, f := range all {
			f()
		}
	}
}

// count adds up what the clients that are there have done.
func (n *nic) count() (s nicStats, sum agentlink.ClientStats) {
	t := n.table.Load().list
	for _, c := range t {
		r := c.stats()
		sum.Frames += r.Frames
		sum.Bytes += r.Bytes
		sum.Arrived += r.Arrived
		sum.Dropped += r.Dropped
		sum.Refused += r.Refused + r.Forged
	}
	return nicStats{uint64(len(t)), n.received.Load(), n.unknown.Load(), sum.Frames, sum.Bytes, sum.Dropped, sum.Refused}, sum
}

func (n *nic) describe() (telemetry.Port, error) {
	_, sum := n.count()
	return telemetry.Port{Name: "agent:" + n.Name, MAC: n.mac.String(), MTU: n.mtu, Queues: 1, LinkUp: n.state() == agentlink.Up,
		Sent: sum.Frames, SentBytes: sum.Bytes, Received: n.received.Load(), Missed: sum.Dropped, SendErrors: sum.Refused}, nil
}
