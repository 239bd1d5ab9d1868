package via

import (
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// Delivery policies, the log of transfers and control programs are no part of VIA: NIC.Driver has them. Package driver
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
