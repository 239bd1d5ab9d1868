package via

import (
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
)

// Delivery policies and the log of transfers are no part of VIA. Package driver documents the types.
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
