package cli

import (
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
	"github.com/trapeze-nic/trapeze/via"
)

// programReport is the part about the control program in the JSON output of demo. NICs are a
// and b, in this order.
type programReport struct {
	Image string      `json:"image"`
	NICs  []fwcmd.Ran `json:"nics"`
}

// chooseProgram reads and checks the control program for the NICs; nil if there is none.
func chooseProgram(f *fwcmd.ProgramFlags, p *policyFlags) (*fwcmd.Chosen, error) {
	c, err := f.Open()
	if err == nil && p.At == "host" && c.DecidesTransfers() {
		err = option.Errorf("--policy-at host: the program of --image %s decides about transfers, in the NIC", c.Name)
	}
	return c, err
}

// reportProgram asks the NICs how the program has done; nil if there is none.
func reportProgram(c *fwcmd.Chosen, nics ...*via.NIC) (*programReport, error) {
	if c == nil {
		return nil, nil
	}
	r := &programReport{Image: c.Name}
	for _, nic := range nics {
		n, err := c.Ran(nic.NIC)
		if err != nil {
			return nil, err
		}
		r.NICs = append(r.NICs, n)
	}
	return r, nil
}
