package cli

import (
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/via"
)

// policyFlags choose the delivery policy.
type policyFlags struct {
	Name    string `flag:"policy" help:"delivery policy: {policy-names} (default the NIC's own)"`
	Send    int    `flag:"minpulse-send" help:"threshold or pulse in bytes when sending (default the policy's)"`
	Receive int    `flag:"minpulse-recv" help:"threshold or pulse in bytes when receiving (default the policy's)"`
	At      string `flag:"policy-at" help:"where the policy runs: host or nic (default nic for those that it has)"`
	Given   cmdtable.Given
}

// options turns the flags into options for opening a NIC.
func (f *policyFlags) options() (via.Options, error) {
	sized := false
	for _, s := range []struct {
		flag string
		n    int
	}{{"minpulse-send", f.Send}, {"minpulse-recv", f.Receive}} {
		if !f.Given(s.flag) {
			continue
		}
		sized = true
		if s.n < 1 || s.n > datasheet.MaxMinPulse {
			return via.Options{}, option.Errorf("--%s %d: 1 to %d bytes", s.flag, s.n, datasheet.MaxMinPulse)
		}
	}
	p := via.Policy{Name: f.Name, MinPulseSend: f.Send, MinPulseReceive: f.Receive}
	if f.Name == "" && sized {
		p.Name = driver.DefaultHostPolicy // the one that the sizes are for
	}
	switch {
	case f.At == "host":
		p.At = via.AtHost
	case f.At == "nic":
	case f.Given("policy-at"):
		return via.Options{}, option.Errorf("--policy-at %q: use host or nic", f.At)
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

// describePolicy says in a line what the policy is and where it runs.
func describePolicy(p telemetry.Policy) string {
	at := "at the " + p.At
	if p.Fallback != "" {
		at += ", as the host had to give up: " + p.Fallback
	}
	if p.Send == p.Receive {
		return fmt.Sprintf("%s, %s", describeDirection(p.Send), at)
	}
	return fmt.Sprintf("%s to send, %s to receive, %s", describeDirection(p.Send), describeDirection(p.Receive), at)
}

func describeDirection(d telemetry.Direction) string {
	switch {
	case d.MinPulse == 0:
		return d.Policy
	case d.Policy == "static" || d.Policy == "cut-through":
		return fmt.Sprintf("%s in pulses of %s", d.Policy, units.Size(d.MinPulse))
	}
	return fmt.Sprintf("%s from %s on", d.Policy, units.Size(d.MinPulse))
}
