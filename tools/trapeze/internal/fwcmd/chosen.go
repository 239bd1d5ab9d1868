package fwcmd

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// ProgramFlags are the flags of commands that put a control program into NICs of their
// own before they use them. Words of their help: {nics} says which NICs, {images} lists the images.
type ProgramFlags struct {
	Image string   `flag:"image" help:"control program for {nics}: a file, or one of {images}"`
	Fill  []string `flag:"map" help:"with --image: MAP:KEY=VALUE, in hexadecimal, sets an entry of a map; may be repeated"`
	Show  []string `flag:"show-map" help:"with --image: name of a map to show at the end; may be repeated"`
}

// Chosen is the control program that the flags name, read and checked.
type Chosen struct {
	*Image
	// Name is the value of --image.
	Name string
	fill map[string][]operation // by the map's name
	show []string
}

// Open reads and checks what the flags ask for; nil if that is nothing.
func (f *ProgramFlags) Open() (*Chosen, error) {
	if f.Image == "" {
		if len(f.Fill)+len(f.Show) > 0 {
			return nil, option.Errorf("--map and --show-map are about the program of --image, and there is none")
		}
		return nil, nil
	}
	c := &Chosen{Name: f.Image, show: f.Show, fill: map[string][]operation{}}
	for _, s := range f.Fill {
		name, set, err := parseSetting(s)
		if err != nil {
			return nil, err
		}
		c.fill[name] = append(c.fill[name], set)
	}
	name := f.Image
	if isShipped(name) {
		name = shippedPrefix + name
	}
	var err error
	if c.Image, err = Open(name); err != nil {
		return nil, err
	}
	return c, c.Check()
}

// Load puts the program, if there is one, into NICs and fills its maps.
func (c *Chosen) Load(ctx context.Context, nics ...*driver.NIC) error {
	if c == nil {
		return nil
	}
	for _, nic := range nics {
		if err := c.load(ctx, nic); err != nil {
			return err
		}
	}
	return nil
}

func (c *Chosen) load(ctx context.Context, nic *driver.NIC) error {
	before, err := nic.ProgramStatus()
	if err != nil {
		return err
	}
	img, err := c.For(before.Device)
	if err != nil {
		return err
	}
	status, err := nic.LoadProgram(ctx, img, load.Options{})
	if err != nil {
		return err
	}
	for _, name := range append(slices.Sorted(maps.Keys(c.fill)), c.show...) { // a name to show that is wrong is found now
		m, err := openMap(nic, c.Image, name, status)
		if err != nil {
			return err
		}
		for _, set := range c.fill[name] {
			if _, err := set.do(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// DecidesTransfers says whether the program has a say in when parts of a frame move on.
func (c *Chosen) DecidesTransfers() bool {
	return c != nil && (c.Has(abi.PulseTx) || c.Has(abi.PulseRx))
}

// Ran is a NIC's report about the program that was chosen, in JSON, with the maps that
// were to be shown.
type Ran struct {
	telemetry.Program
	Maps map[string][]Entry `json:"maps" help:"entries by name"`
}

// Ran asks a NIC how the program has done.
func (c *Chosen) Ran(nic *driver.NIC) (Ran, error) {
	status, err := nic.ProgramStatus()
	if err != nil {
		return Ran{}, err
	}
	r := Ran{Program: status.Describe(), Maps: map[string][]Entry{}}
	for _, name := range c.show {
		m, err := openMap(nic, c.Image, name, status)
		if err != nil {
			return Ran{}, err
		}
		if r.Maps[name], err = readMap(m); err != nil {
			return Ran{}, fmt.Errorf("map %s: %w", name, err)
		}
	}
	return r, nil
}
