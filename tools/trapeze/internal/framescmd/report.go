package framescmd

import (
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
)

// totals is the part that the JSON outputs of all commands share.
type totals struct {
	Seconds float64      `json:"seconds"`
	Ports   []portReport `json:"ports"`
}

// portReport counts the work of a port.
type portReport struct {
	Device string `json:"device"`
	Driver string `json:"driver"`
	Model  string `json:"model"`
	MAC    string `json:"mac"`
	MTU    int    `json:"mtu"`
	Queues int    `json:"queues"`
	// Vectors is the number of interrupts in use.
	Vectors        int    `json:"vectors" help:"interrupts in use"`
	LinkUp         bool   `json:"link_up"`
	ReceivedFrames uint64 `json:"received_frames"`
	ReceivedBytes  uint64 `json:"received_bytes"`
	SentFrames     uint64 `json:"sent_frames"`
	SentBytes      uint64 `json:"sent_bytes"`
	// Counters are all others, those of the device with its name before them.
	Counters map[string]uint64 `json:"counters"`
	Program  *fwcmd.Ran        `json:"program,omitempty" help:"with --image"`
}

// totals asks the ports what they have done.
func (s *session) totals() (t totals, err error) {
	t = totals{Seconds: time.Since(s.began).Seconds(), Ports: []portReport{}}
	for _, p := range s.ports {
		info, counters := p.Info(), p.Stats()
		link, err := p.Link()
		if err != nil {
			return t, err
		}
		var q ethernet.QueueStats
		add(&q, counters.Queues)
		r := portReport{
			Device: info.Device, Driver: info.Driver, Model: info.Model, MAC: p.MAC().String(), MTU: info.Options.MTU,
			Queues: len(counters.Queues), Vectors: info.Vectors, LinkUp: link.Up,
			ReceivedFrames: q.ReceivedFrames, ReceivedBytes: q.ReceivedBytes, SentFrames: q.SentFrames, SentBytes: q.SentBytes,
			Counters: map[string]uint64{
				"receive_errors": q.ReceiveErrors, "bad_lengths": q.BadLengths, "unended": q.Unended, "no_buffers": q.NoBuffers,
				"lost": q.Lost, "queue_restarts": q.Restarts, "interrupts": q.Interrupts, "restarts": counters.Restarts,
			},
		}
		if d := counters.Device; d != nil {
			r.Counters["device_received_frames"], r.Counters["device_received_bytes"] = d.ReceivedFrames, d.ReceivedBytes
			r.Counters["device_sent_frames"], r.Counters["device_sent_bytes"] = d.SentFrames, d.SentBytes
			r.Counters["device_missed"], r.Counters["device_receive_errors"] = d.Missed, d.ReceiveErrors
		}
		if s.program != nil && p.nic != nil {
			ran, err := s.program.Ran(p.nic)
			if err != nil {
				return t, err
			}
			r.Program = &ran
		}
		t.Ports = append(t.Ports, r)
	}
	return t, nil
}
