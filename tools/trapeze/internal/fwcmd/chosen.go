package fwcmd

import (
	"context"
	"fmt"
	"io"
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
	fill []Setting
	show []string
}

// Choose reads and checks a program by name or file; nil for no name.
func Choose(name string) (*Chosen, error) { return (&ProgramFlags{Image: name}).Open() }

// Open reads and checks what the flags ask for; nil if that is nothing.
func (f *ProgramFlags) Open() (*Chosen, error) {
	if f.Image == "" {
		if len(f.Fill)+len(f.Show) > 0 {
			return nil, option.Errorf("--map and --show-map are about the program of --image, and there is none")
		}
		return nil, nil
	}
	c := &Chosen{Name: f.Image, show: f.Show}
	for _, s := range f.Fill {
		set, err := ParseSetting(s)
		if err != nil {
			return nil, err
		}
		c.fill = append(c.fill, set)
	}
	name := f.Image
	if IsShipped(name) {
		name = Shipped(name)
	}
	var err error
	if c.Image, err = Open(name); err != nil {
		return nil, err
	}
	return c, c.Check()
}

// Load puts the program into a NIC and fills its maps.
func (c *Chosen) Load(ctx context.Context, nic *driver.NIC) error {
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
	for _, s := range c.fill {
		m, err := OpenMap(nic, c.Image, s.Map, status)
		if err != nil {
			return err
		}
		if err := s.Apply(m); err != nil {
			return err
		}
	}
	for _, name := range c.show { // a name that is wrong is found now
		if _, err := OpenMap(nic, c.Image, name, status); err != nil {
			return err
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

// PrintMaps prints the entries of the maps for people, in lines that begin with start.
func (r *Ran) PrintMaps(w io.Writer, start string) {
	for _, name := range slices.Sorted(maps.Keys(r.Maps)) {
		for _, e := range r.Maps[name] {
			fmt.Fprintf(w, "%s%s: %s = %s\n", start, name, e.Key, e.Value)
		}
		if len(r.Maps[name]) == 0 {
			fmt.Fprintf(w, "%s%s: empty\n", start, name)
		}
	}
}

// Ran asks a NIC how the program has done.
func (c *Chosen) Ran(nic *driver.NIC) (Ran, error) {
	status, err := nic.ProgramStatus()
	if err != nil {
		return Ran{}, err
	}
	r := Ran{Program: status.Describe(), Maps: map[string][]Entry{}}
	for _, name := range c.show {
		m, err := OpenMap(nic, c.Image, name, status)
		if err != nil {
			return Ran{}, err
		}
		if r.Maps[name], err = ReadMap(m); err != nil {
			return Ran{}, fmt.Errorf("map %s: %w", name, err)
		}
	}
	return r, nil
}
