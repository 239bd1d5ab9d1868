package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
	"github.com/trapeze-nic/trapeze/firmware-loader/images"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
	"github.com/trapeze-nic/trapeze/via"
)

// imageFlags choose a control program for the NICs of demo.
type imageFlags struct {
	image      string
	fill, show []string
}

func (f *imageFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.image, "image", "", "control program for both NICs: a file, or one of "+strings.Join(images.Names(), ", "))
	c.Flags().StringArrayVar(&f.fill, "map", nil, "with --image: MAP:KEY=VALUE, in hexadecimal, sets an entry of a map in both NICs; may be repeated")
	c.Flags().StringArrayVar(&f.show, "show-map", nil, "with --image: name of a map to show at the end; may be repeated")
}

// programReport is what demo --json prints about the control program. NICs are a
// and b, in this order.
type programReport struct {
	Image string       `json:"image"`
	NICs  []programNIC `json:"nics"`
}

type programNIC struct {
	fwcmd.Program
	Maps map[string][]fwcmd.Entry `json:"maps"`
}

// controlled is the control program that demo runs.
type controlled struct {
	flags *imageFlags
	image *fwcmd.Image
	fill  []fwcmd.Setting
}

// open reads and checks what the flags ask for; nil if that is nothing.
func (f *imageFlags) open(p *policyFlags) (*controlled, error) {
	if f.image == "" {
		if len(f.fill)+len(f.show) > 0 {
			return nil, option.Errorf("--map and --show-map are about the program of --image, and there is none")
		}
		return nil, nil
	}
	name := f.image
	if fwcmd.IsShipped(name) {
		name = fwcmd.Shipped(name)
	}
	c := &controlled{flags: f}
	for _, s := range f.fill {
		set, err := fwcmd.ParseSetting(s)
		if err != nil {
			return nil, err
		}
		c.fill = append(c.fill, set)
	}
	var err error
	if c.image, err = fwcmd.Open(name); err != nil {
		return nil, err
	}
	if p.at == "host" && (c.image.Has(abi.PulseTx) || c.image.Has(abi.PulseRx)) {
		return nil, option.Errorf("--policy-at host: the program of --image %s decides about transfers, in the NIC", f.image)
	}
	return c, c.image.Check()
}

// load puts the program into both NICs and fills its maps.
func (c *controlled) load(ctx context.Context, nics ...*via.NIC) error {
	if c == nil {
		return nil
	}
	for _, nic := range nics {
		before, err := nic.ProgramStatus()
		if err != nil {
			return err
		}
		img, err := c.image.For(before.Device)
		if err != nil {
			return err
		}
		status, err := nic.LoadProgram(ctx, img, load.Options{})
		if err != nil {
			return err
		}
		for _, s := range c.fill {
			m, err := fwcmd.OpenMap(nic, c.image, s.Map, status)
			if err != nil {
				return err
			}
			if err := s.Apply(m); err != nil {
				return err
			}
		}
		for _, name := range c.flags.show { // a name that is wrong is found now
			if _, err := fwcmd.OpenMap(nic, c.image, name, status); err != nil {
				return err
			}
		}
	}
	return nil
}

// report asks the NICs how the program has done.
func (c *controlled) report(nics ...*via.NIC) (*programReport, error) {
	if c == nil {
		return nil, nil
	}
	r := &programReport{Image: c.flags.image}
	for _, nic := range nics {
		status, err := nic.ProgramStatus()
		if err != nil {
			return nil, err
		}
		n := programNIC{Program: fwcmd.Describe(status), Maps: map[string][]fwcmd.Entry{}}
		for _, name := range c.flags.show {
			m, err := fwcmd.OpenMap(nic, c.image, name, status)
			if err != nil {
				return nil, err
			}
			if n.Maps[name], err = fwcmd.ReadMap(m); err != nil {
				return nil, err
			}
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
		for _, m := range slices.Sorted(maps.Keys(n.Maps)) {
			for _, e := range n.Maps[m] {
				fmt.Fprintf(w, "  %s  %s: %s = %s\n", name, m, e.Key, e.Value)
			}
		}
	}
}
