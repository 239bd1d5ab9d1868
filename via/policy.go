package via

import (
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// Delivery policies and the log of transfers are no part of VIA. Package driver
// documents the types.
type (
	// Policy decides how the bytes of a frame cross the NIC while the frame is
	// still arriving, and says where it runs.
	Policy = driver.Policy
	// DMARecord is one transfer of one engine.
	DMARecord = dmalog.Record
)

// Where a policy runs, and what runs at the host if no policy is named.
const (
	AtNIC             = driver.AtNIC
	AtHost            = driver.AtHost
	DefaultHostPolicy = driver.DefaultHostPolicy
)

// SetPolicy chooses the delivery policy, and where it runs: in the NIC, or in
// this process, which then takes part in moving each frame whenever the NIC is
// polled or waited on, and on a goroutine else. Errors: ErrInvalidParameter,
// ErrNotSupported if the NIC is too old for it; then nothing has changed.
func (n *NIC) SetPolicy(p Policy) error { return n.d.SetPolicy(p) }

// Policy returns which policy moves frames. It fails with ErrNotSupported if
// the NIC cannot say.
func (n *NIC) Policy() (driver.PolicyState, error) { return n.d.Policy() }

// EnableDMALog has the NIC keep a record of each transfer of its engines, in a
// log with room for at least the given number of records, 1 to
// driver.MaxDMALog. It starts empty, and what finds it full is dropped. Errors:
// ErrInvalidParameter, ErrNotSupported.
func (n *NIC) EnableDMALog(records int) error { return n.d.EnableDMALog(records) }

// DisableDMALog ends the log; what was not read is gone.
func (n *NIC) DisableDMALog() error { return n.d.DisableDMALog() }

// ReadDMALog moves the oldest records of the log into p and returns how many,
// zero if there are none. Package internal/dmalog writes them to a file, from
// which 'trapeze-lab plot flow' draws a packet flow graph. Errors:
// ErrInvalidState if there is no log, ErrDevice if the NIC wrote nonsense.
func (n *NIC) ReadDMALog(p []DMARecord) (int, error) { return n.d.ReadDMALog(p) }

// DMALog returns the state of the DMA log.
func (n *NIC) DMALog() (driver.DMALogState, error) { return n.d.DMALog() }
