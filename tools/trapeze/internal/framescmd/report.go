package framescmd

import (
	"fmt"
	"io"
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

// print writes the totals of the ports, a line or two each.
func (t *totals) print(w io.Writer) {
	for _, p := range t.Ports {
		fmt.Fprintf(w, "--- %s (%s %s, MAC %s), %.1f s ---\n", p.Device, p.Driver, p.Model, p.MAC, t.Seconds)
		fmt.Fprintf(w, "received %d frames of %d bytes, sent %d of %d\n", p.ReceivedFrames, p.ReceivedBytes, p.SentFrames, p.SentBytes)
		lost := ""
		for _, c := range []struct{ name, says string }{
			{"device_missed", "missed by the device for lack of a buffer"}, {"device_receive_errors", "refused by the device"},
			{"receive_errors", "damaged"}, {"bad_lengths", "of impossible length"}, {"unended", "without an end"},
			{"lost", "lost in a ring that was restarted"},
		} {
			if n := p.Counters[c.name]; n > 0 {
				lost += fmt.Sprintf(", %d %s", n, c.says)
			}
		}
		if lost != "" {
			fmt.Fprintf(w, "not delivered: %s\n", lost[2:])
		}
		if p.Program != nil {
			fmt.Fprintf(w, "control program: %s\n", p.Program.String())
			for _, h := range p.Program.Active() {
				fmt.Fprintf(w, "  %v\n", h)
			}
			p.Program.PrintMaps(w, "  ")
		}
	}
}
