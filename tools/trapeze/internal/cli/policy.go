package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/via"
)

// policyHelp belongs into the description of every command that has the flags.
const policyHelp = `
A NIC moves a frame in pieces while it is still arriving, as its delivery policy
says. --policy chooses one for each NIC that the command opens, and --policy-at
where it runs: in the NIC, or in this process, which then gives the NIC a pulse
for each piece. By default a policy that NICs have runs there, any other at the
host.`

// policyFlags choose the delivery policy.
type policyFlags struct {
	command       *cobra.Command
	name, at      string
	send, receive int
}

func (f *policyFlags) register(c *cobra.Command) {
	f.command = c
	c.Flags().StringVar(&f.name, "policy", "", "delivery policy: "+strings.Join(driver.HostPolicies(), ", ")+" (default the NIC's own)")
	c.Flags().IntVar(&f.send, "minpulse-send", 0, "threshold or pulse in bytes when sending (default the policy's)")
	c.Flags().IntVar(&f.receive, "minpulse-recv", 0, "threshold or pulse in bytes when receiving (default the policy's)")
	c.Flags().StringVar(&f.at, "policy-at", "", "where the policy runs: host or nic (default nic for those that it has)")
}

// options are what the flags mean for opening a NIC.
func (f *policyFlags) options() (via.Options, error) {
	changed := f.command.Flags().Changed
	sized := false
	for _, s := range []struct {
		flag string
		n    int
	}{{"minpulse-send", f.send}, {"minpulse-recv", f.receive}} {
		if !changed(s.flag) {
			continue
		}
		sized = true
		if s.n < 1 || s.n > datasheet.MaxMinPulse {
			return via.Options{}, option.Errorf("--%s %d: 1 to %d bytes", s.flag, s.n, datasheet.MaxMinPulse)
		}
	}
	p := via.Policy{Name: f.name, MinPulseSend: f.send, MinPulseReceive: f.receive}
	if f.name == "" && sized {
		p.Name = driver.DefaultHostPolicy // the one that the sizes are for
	}
	switch {
	case f.at == "host":
		p.At = via.AtHost
	case f.at == "nic":
	case changed("policy-at"):
		return via.Options{}, option.Errorf("--policy-at %q: use host or nic", f.at)
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
