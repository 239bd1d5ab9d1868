package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/strict"
	"github.com/trapeze-nic/trapeze/wire"
)

// stateVersion is that of what one agent gives to the next. It grows with each change of the fields.
const stateVersion = 1

// maxNICs bounds the NICs that one agent gives to the next.
const maxNICs = 256

// state holds an agent's NIC and settings, but for its clients.
type state struct {
	Version int        `json:"version"`
	NICs    []nicState `json:"nics"`
	Clients int        `json:"clients"` // how many messages follow
	Removes bool       `json:"removes"` // the path of the socket is the agent's to remove
	// What the service manager has given to the process: sd_notify(3), sd_watchdog_enabled(3).
	Supervisor supervisor `json:"supervisor"`
}

// supervisor says where the service manager is told of the agent, and how often.
type supervisor struct {
	Notify   string `json:"notify"`   // NOTIFY_SOCKET
	Watchdog string `json:"watchdog"` // WATCHDOG_USEC
}

// adopt makes this process tell the service manager of the old agent, unless it has one itself.
func (s supervisor) adopt() error {
	own := os.Getenv("NOTIFY_SOCKET")
	if s.Notify == "" || own != "" && own != s.Notify {
		return nil
	}
	err := os.Setenv("NOTIFY_SOCKET", s.Notify)
	if os.Getenv("WATCHDOG_USEC") == "" {
		err = errors.Join(err, os.Setenv("WATCHDOG_USEC", s.Watchdog))
	}
	return err
}

type nicState struct {
	Name     string `json:"name"`
	Received uint64 `json:"received"`
	Unknown  uint64 `json:"unknown"`
}

// clientState is a client.
type clientState struct {
	NIC      string                `json:"nic"`
	Station  string                `json:"station"`
	Program  string                `json:"program"`
	VIs      uint32                `json:"vis"`
	Memory   uint64                `json:"memory"` // bytes; 0: no limit
	Checksum bool                  `json:"checksum"`
	Counters agentlink.ClientStats `json:"counters"`
	Wire     wire.SHMState         `json:"wire"`
}

// ErrState is wrapped by a StateError.
var ErrState = errors.New("what the other agent passes cannot be used")

// StateError says which field of what another agent passes is wrong. It wraps ErrState.
type StateError struct {
	Field string // such as client[3].wire.ring
	Err   error
}

func (e *StateError) Error() string { return fmt.Sprintf("%v: %s: %v", ErrState, e.Field, e.Err) }

// Unwrap returns ErrState and Err.
func (e *StateError) Unwrap() []error { return []error{ErrState, e.Err} }

func badState(field, format string, a ...any) error {
	return &StateError{field, fmt.Errorf(format, a...)}
}

// decode reads JSON with the fields of v and no others.
func decode(text []byte, of string, v any) error {
	var bad *strict.Error
	if !errors.As(strict.JSON(text, v), &bad) {
		return nil
	}
	if bad.Key != "" {
		of += "." + bad.Key
	}
	return &StateError{of, bad.Err}
}

// parseState reads the state of an agent. It fails with a *StateError.
func parseState(text []byte) (*state, error) {
	// A newer version may have other fields: it comes first.
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, &StateError{"state", err}
	}
	if v.Version != stateVersion {
		return nil, badState("state.version", "it is %d, and this agent knows %d", v.Version, stateVersion)
	}
	s := &state{}
	if err := decode(text, "state", s); err != nil {
		return nil, err
	}
	if len(s.NICs) > maxNICs {
		return nil, badState("state.nics", "there are %d, at most %d", len(s.NICs), maxNICs)
	}
	known := map[string]bool{}
	for i, n := range s.NICs {
		if !nicNames.MatchString(n.Name) || known[n.Name] {
			return nil, badState(fmt.Sprintf("state.nics[%d].name", i), "%q is no name, or that of another one", printable(n.Name))
		}
		known[n.Name] = true
	}
	if s.Clients < 0 || s.Clients > maxClients*len(s.NICs) {
		return nil, badState("state.clients", "%d is not in 0..%d", s.Clients, maxClients*len(s.NICs))
	}
	return s, nil
}

// parseClient reads the state of client number i. It fails with a *StateError.
func parseClient(text []byte, i int) (*clientState, error) {
	of := fmt.Sprintf("client[%d]", i)
	c := &clientState{}
	if err := decode(text, of, c); err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(c.Station)
	var wrong interface {
		error
		In() string // the field
	}
	switch {
	case !nicNames.MatchString(c.NIC):
		return nil, badState(of+".nic", "%q is no name", printable(c.NIC))
	case err != nil || len(mac) != len(datasheet.MAC{}) || datasheet.MAC(mac).IsMulticast():
		return nil, badState(of+".station", "%q is no station", printable(c.Station))
	case c.Program != printable(c.Program):
		return nil, badState(of+".program", "it has more than %d letters, or some that cannot be shown", maxProgram)
	case c.VIs < 1 || c.VIs > maxVIs:
		return nil, badState(of+".vis", "%d is not in 1..%d", c.VIs, maxVIs)
	case errors.As(c.Wire.Check(), &wrong):
		return nil, &StateError{of + ".wire." + wrong.In(), wrong}
	}
	return c, nil
}

// stats are the client's counters, and setStats continues them.
func (c *client) stats() agentlink.ClientStats {
	return agentlink.ClientStats{
		Frames: c.frames.Load(), Bytes: c.bytes.Load(), Arrived: c.reached.Load(), Dropped: c.dropped.Load(), Lost: c.lost.Load(),
		Forged: c.forged.Load(), Refused: c.refused.Load(), Slowed: c.slowed.Load()}
}

func (c *client) setStats(s *agentlink.ClientStats) {
	c.frames.Store(s.Frames)
	c.bytes.Store(s.Bytes)
	c.reached.Store(s.Arrived)
	c.dropped.Store(s.Dropped)
	c.lost.Store(s.Lost)
	c.forged.Store(s.Forged)
	c.refused.Store(s.Refused)
	c.slowed.Store(s.Slowed)
}
