package cli

import (
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
)

// firmware is what the commands about control programs need.
func (p *program) firmware() fwcmd.Env {
	return fwcmd.Env{
		JSON: func() bool { return p.json }, Run: p.command, Meter: p.meter,
		DeviceError: func(err error) error { return &deviceError{err} },
	}
}
