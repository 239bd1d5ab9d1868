package cli

import (
	"slices"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/via"
)

// policyFlags choose the delivery policy.
type policyFlags struct {
	Name    string `flag:"policy" help:"delivery policy: {policy-names} (default the NIC's own)"`
	Send    int    `flag:"minpulse-send" range:"1..65536" help:"threshold or pulse in bytes when sending (default the policy's)"`
	Receive int    `flag:"minpulse-recv" range:"1..65536" help:"threshold or pulse in bytes when receiving (default the policy's)"`
	At      string `flag:"policy-at" oneof:"host,nic" help:"where the policy runs: host or nic (default nic for those that it has)"`
}

// options turns the flags into options for opening a NIC.
func (f *policyFlags) options() (via.Options, error) {
	p := via.Policy{Name: f.Name, MinPulseSend: f.Send, MinPulseReceive: f.Receive}
	if f.Name == "" && f.Send+f.Receive > 0 {
		p.Name = driver.DefaultHostPolicy // the one that the sizes are for
	}
	switch {
	case f.At == "host":
		p.At = via.AtHost
	case f.At == "nic":
	case p.Name == "":
		return via.Options{}, nil
	case !slices.Contains(driver.NICPolicies(), p.Name):
		p.At = via.AtHost
	}
	if err := p.Check(); err != nil {
		return via.Options{}, option.Errorf("--policy %s: %w", p.Name, err)
	}
	return via.Options{Policy: p}, nil
}
