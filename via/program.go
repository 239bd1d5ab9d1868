package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Control programs are no part of VIA. Package firmware-loader makes and checks
// images of them; package load documents the types.

// LoadProgram puts a control program into the NIC and starts it, while frames that
// would be asked about wait. It checks that the image is one for this NIC, not
// who made it or what it does: see firmware.Spec.Verify and Check. Whatever fails,
// what ran before runs again; the error wraps *load.Error, which says so. Errors:
// ErrNotSupported without a NIC processor, ErrInvalidParameter for an image that is
// not for this NIC, ErrTimeout, ErrCanceled, ErrDevice.
func (n *NIC) LoadProgram(ctx context.Context, img load.Image, o load.Options) (load.Status, error) {
	return n.d.LoadProgram(ctx, img, o)
}

// RollBackProgram starts the control program that ran before the present one.
// Errors are those of LoadProgram, and ErrInvalidState if there is none.
func (n *NIC) RollBackProgram(ctx context.Context, o load.Options) (load.Status, error) {
	return n.d.RollBackProgram(ctx, o)
}

// UnloadProgram has the NIC do what it has built in.
func (n *NIC) UnloadProgram() (load.Status, error) { return n.d.UnloadProgram() }

// ProgramStatus returns which control program runs, and how often it was asked.
func (n *NIC) ProgramStatus() (load.Status, error) { return n.d.ProgramStatus() }

// ProgramMap returns map number index of the control program that runs, which has
// maps as its image lists them (firmware.Spec.Maps). That it is this image's
// program, ProgramStatus says by the digest. Errors: ErrInvalidParameter,
// ErrNotSupported.
func (n *NIC) ProgramMap(maps []abi.Map, index int) (*driver.ProgramMap, error) {
	return n.d.ProgramMap(maps, index)
}
