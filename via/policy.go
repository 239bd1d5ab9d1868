package via

import (
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/pipeline/dmalog"
)

// Delivery policies and the log of transfers are no part of VIA. Package driver
// documents the types.
type (
	// Policy decides how the bytes of a frame cross the NIC while the frame is
	// still arriving, and says where it runs.
	Policy = driver.Policy
	// Placement says where a policy runs.
	Placement = driver.Placement
	// PolicyState is which policy moves frames, and how that goes.
	PolicyState = driver.PolicyState
	// DMARecord is one transfer of one engine.
	DMARecord = dmalog.Record
	// DMALogState is the state of the DMA log.
	DMALogState = driver.DMALogState
)

// Where a policy runs.
const (
	AtNIC  = driver.AtNIC
	AtHost = driver.AtHost
)

// DefaultHostPolicy is what runs at the host if no policy is named.
const DefaultHostPolicy = driver.DefaultHostPolicy

// DataMover is implemented by a Provider whose NIC lets the delivery policy be
// chosen and keeps a log of its transfers. The methods are those of driver.NIC.
type DataMover interface {
	SetPolicy(Policy) error
	Policy() (PolicyState, error)
	EnableDMALog(records int) error
	DisableDMALog() error
	ReadDMALog([]DMARecord) (int, error)
	DMALog() (DMALogState, error)
}

var _ DataMover = (*driverNIC)(nil)

// WithPolicy chooses the delivery policy when a NIC is opened, see
// NIC.SetPolicy. A NIC that cannot have it is not opened.
func WithPolicy(p Policy) Option {
	return func(s *settings) { s.policy = &p }
}

// mover returns the part of the provider that moves data, or why there is none.
func (n *NIC) mover(op string) (DataMover, error) {
	if n.closed.Load() {
		return nil, n.refuse(op, ErrClosed, "", "")
	}
	m, ok := n.provider.(DataMover)
	if !ok {
		return nil, n.refuse(op, ErrNotSupported, "", "what runs this NIC has no delivery policies to choose from")
	}
	return m, nil
}

// SetPolicy chooses the delivery policy, and where it runs: in the NIC, or in
// this process, which then takes part in moving each frame whenever the NIC is
// polled or waited on, and on a goroutine else. Errors: ErrInvalidParameter,
// ErrNotSupported if the NIC is too old for it; then nothing has changed.
func (n *NIC) SetPolicy(p Policy) error {
	const op = "set policy"
	m, err := n.mover(op)
	if err != nil {
		return err
	}
	return n.fail(op, m.SetPolicy(p))
}

// Policy returns which policy moves frames. It fails with ErrNotSupported if
// the NIC cannot say.
func (n *NIC) Policy() (PolicyState, error) {
	const op = "query policy"
	m, err := n.mover(op)
	if err != nil {
		return PolicyState{}, err
	}
	s, err := m.Policy()
	return s, n.fail(op, err)
}

// EnableDMALog has the NIC keep a record of each transfer of its engines, in a
// log with room for at least the given number of records, 1 to
// driver.MaxDMALog. It starts empty, and what finds it full is dropped. Errors:
// ErrInvalidParameter, ErrNotSupported.
func (n *NIC) EnableDMALog(records int) error {
	const op = "enable DMA log"
	m, err := n.mover(op)
	if err != nil {
		return err
	}
	return n.fail(op, m.EnableDMALog(records))
}

// DisableDMALog ends the log; what was not read is gone.
func (n *NIC) DisableDMALog() error {
	const op = "disable DMA log"
	m, err := n.mover(op)
	if err != nil {
		return err
	}
	return n.fail(op, m.DisableDMALog())
}

// ReadDMALog moves the oldest records of the log into p and returns how many,
// zero if there are none. Package pipeline/dmalog writes them to a file, from
// which 'trapeze plot flow' draws a packet flow graph. Errors:
// ErrInvalidState if there is no log, ErrDevice if the NIC wrote nonsense.
func (n *NIC) ReadDMALog(p []DMARecord) (int, error) {
	const op = "read DMA log"
	m, err := n.mover(op)
	if err != nil {
		return 0, err
	}
	count, err := m.ReadDMALog(p)
	return count, n.fail(op, err)
}

// DMALog returns the state of the DMA log.
func (n *NIC) DMALog() (DMALogState, error) {
	const op = "query DMA log"
	m, err := n.mover(op)
	if err != nil {
		return DMALogState{}, err
	}
	s, err := m.DMALog()
	return s, n.fail(op, err)
}
