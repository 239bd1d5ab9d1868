package cli

import "github.com/trapeze-nic/trapeze/via"

// eagerFlag is --eager of the commands that move messages.
type eagerFlag struct {
	Eager bool `flag:"eager" help:"have the NIC hold messages, descriptors and tokens before they are posted"`
}

// options adds what the flag says to those of a NIC.
func (f eagerFlag) options(opts via.Options) via.Options {
	opts.Eager = opts.Eager || f.Eager
	return opts
}

// report returns the counts of the NIC's eager memory, nil without --eager.
func (f eagerFlag) report(nic *via.NIC) (*via.EagerStats, error) {
	if !f.Eager {
		return nil, nil
	}
	s, err := nic.EagerStats()
	if err != nil {
		return nil, err
	}
	return &s, nil
}
