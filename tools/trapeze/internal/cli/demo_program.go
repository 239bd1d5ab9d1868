package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/abi"
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

// loadProgram puts the program into the NICs, if there is one.
func loadProgram(ctx context.Context, c *fwcmd.Chosen, nics ...*via.NIC) error {
	for _, nic := range nics {
		if c == nil {
			break
		}
		if err := c.Load(ctx, nic.NIC); err != nil {
			return err
		}
	}
	return nil
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

// policy says who decides about transfers besides the delivery policy.
func (r *programReport) policy() string {
	if r == nil {
		return ""
	}
	var hooks []string
	for _, h := range r.NICs[0].Active() {
		if h.Installed && (h.Hook == abi.PulseTx.String() || h.Hook == abi.PulseRx.String()) {
			hooks = append(hooks, h.Hook)
		}
	}
	if len(hooks) == 0 {
		return ""
	}
	return fmt.Sprintf("control program %s at %s; without it ", r.NICs[0].Name, strings.Join(hooks, " and "))
}

func (r *programReport) print(w io.Writer, on, off string) {
	if r == nil {
		return
	}
	n := r.NICs[0]
	fmt.Fprintf(w, "\n%scontrol program%s %s %s, digest %s\n", on, off, n.Name, n.Version, n.Digest)
	for i, n := range r.NICs {
		name := string(rune('a' + i))
		if n.Fault != "" {
			fmt.Fprintf(w, "  %s  %s: %s\n", name, n.State, n.Fault)
		}
		for _, h := range n.Active() {
			fmt.Fprintf(w, "  %s  %v\n", name, h)
		}
		n.PrintMaps(w, "  "+name+"  ")
	}
}
