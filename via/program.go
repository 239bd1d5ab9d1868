package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
)

// Control programs are no part of VIA. Package firmware-loader makes and checks
// images of them; package load documents the types.
type (
	// ProgramImage is what is put into a NIC, see load.Flat.
	ProgramImage = load.Image
	// ProgramOptions bound a load and let it show its progress.
	ProgramOptions = load.Options
	// ProgramStatus is what a NIC says about its control program.
	ProgramStatus = load.Status
)

// Programmable is implemented by a Provider whose NIC runs control programs. The
// methods are those of driver.NIC.
type Programmable interface {
	LoadProgram(ctx context.Context, img ProgramImage, o ProgramOptions) (ProgramStatus, error)
	RollBackProgram(ctx context.Context, o ProgramOptions) (ProgramStatus, error)
	UnloadProgram() (ProgramStatus, error)
	ProgramStatus() (ProgramStatus, error)
	ProgramMap(maps []abi.Map, index int) (*driver.ProgramMap, error)
}

var _ Programmable = (*driverNIC)(nil)

// programmable returns the part of the provider that runs programs, or why there
// is none.
func (n *NIC) programmable(op string) (Programmable, error) {
	if n.closed.Load() {
		return nil, n.refuse(op, ErrClosed, "", "")
	}
	p, ok := n.provider.(Programmable)
	if !ok {
		return nil, n.refuse(op, ErrNotSupported, "", "what runs this NIC has no control programs")
	}
	return p, nil
}

// LoadProgram puts a control program into the NIC and starts it, while frames that
// would be asked about wait. It checks that the image is one for this NIC, not
// who made it or what it does: see firmware.Spec.Verify and Check. Whatever fails,
// what ran before runs again; the error wraps *load.Error, which says so. Errors:
// ErrNotSupported without a NIC processor, ErrInvalidParameter for an image that is
// not for this NIC, ErrTimeout, ErrCanceled, ErrDevice.
func (n *NIC) LoadProgram(ctx context.Context, img ProgramImage, o ProgramOptions) (ProgramStatus, error) {
	return n.onProgram("load program", func(p Programmable) (ProgramStatus, error) { return p.LoadProgram(ctx, img, o) })
}

// RollBackProgram starts the control program that ran before the present one.
// Errors are those of LoadProgram, and ErrInvalidState if there is none.
func (n *NIC) RollBackProgram(ctx context.Context, o ProgramOptions) (ProgramStatus, error) {
	return n.onProgram("roll program back", func(p Programmable) (ProgramStatus, error) { return p.RollBackProgram(ctx, o) })
}

// UnloadProgram has the NIC do what it has built in.
func (n *NIC) UnloadProgram() (ProgramStatus, error) {
	return n.onProgram("unload program", Programmable.UnloadProgram)
}

// ProgramStatus returns which control program runs, and how often it was asked.
func (n *NIC) ProgramStatus() (ProgramStatus, error) {
	return n.onProgram("query program", Programmable.ProgramStatus)
}

func (n *NIC) onProgram(op string, f func(Programmable) (ProgramStatus, error)) (ProgramStatus, error) {
	p, err := n.programmable(op)
	if err != nil {
		return ProgramStatus{}, err
	}
	s, err := f(p)
	return s, n.fail(op, err)
}

// ProgramMap is a map of the control program that runs.
type ProgramMap struct {
	nic *NIC
	m   *driver.ProgramMap
}

// ProgramMap returns map number index of the control program that runs, which has
// maps as its image lists them (firmware.Spec.Maps). That it is this image's
// program, ProgramStatus says by the digest. Errors: ErrInvalidParameter,
// ErrNotSupported.
func (n *NIC) ProgramMap(maps []abi.Map, index int) (*ProgramMap, error) {
	const op = "open map"
	p, err := n.programmable(op)
	if err != nil {
		return nil, err
	}
	m, err := p.ProgramMap(maps, index)
	if err != nil {
		return nil, n.fail(op, err)
	}
	return &ProgramMap{n, m}, nil
}

// Spec returns the map's name, type and sizes.
func (m *ProgramMap) Spec() abi.Map { return m.m.Spec() }

// Lookup reads the value of a key; both have the map's sizes. Errors wrap
// load.ErrNoEntry, load.ErrSize, load.ErrNoProgram.
func (m *ProgramMap) Lookup(key, value []byte) error {
	return m.nic.fail("look up", m.m.Lookup(key, value))
}

// Update sets the value of a key; flags is descriptors.MailboxAny, MailboxAbsent or
// MailboxExists. Errors wrap load.ErrPresent, ErrNoEntry, ErrFull, ErrReadOnly,
// ErrSize, ErrNoProgram; they change nothing.
func (m *ProgramMap) Update(key, value []byte, flags uint8) error {
	return m.nic.fail("update map", m.m.Update(key, value, flags))
}

// Delete removes a key. Errors are those of Lookup.
func (m *ProgramMap) Delete(key []byte) error { return m.nic.fail("delete key", m.m.Delete(key)) }

// Next replaces key by the one after it, or by the first; see load.Map.Next. It
// fails with load.ErrNoEntry at the end.
func (m *ProgramMap) Next(key []byte, first bool) error {
	return m.nic.fail("next key", m.m.Next(key, first))
}
