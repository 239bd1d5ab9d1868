package wire

import (
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
	"github.com/trapeze-nic/trapeze/wire/internal/nic"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// FaultyStats are the counters of a wire with faults.
type FaultyStats struct {
	Faults FaultStats `json:"faults" help:"What was done to frames." unit:"frames"`
	Wire   any        `json:"wire" help:"The counters of the wire within." unit:"frames"`
}

// Broke returns the last error of a port of a switch, nil for any other port and if no frame broke
// off there.
func Broke(p Port) *PathError {
	switch p := p.(type) {
	case interface{ Inner() Port }:
		return Broke(p.Inner())
	case *switchPort:
		return p.failed.Load()
	}
	return nil
}

// Stats returns the counters of a port, a struct whose tags describe them; nil for a port that
// has none, such as one of a wire in memory.
func Stats(p Port) any {
	switch p := p.(type) {
	case *fault:
		return FaultyStats{p.Stats(), Stats(p.Port)}
	case interface{ Inner() Port }:
		return Stats(p.Inner())
	case *switchPort:
		return p.Stats()
	case *UDP:
		return p.Stats()
	case *host:
		return p.Stats()
	case *shm.Port:
		return p.Stats()
	case *memif.Port:
		return p.Stats()
	case *nic.Port:
		return p.Stats()
	}
	return nil
}
