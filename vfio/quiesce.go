package vfio

import (
	"context"
	"encoding/binary"
	"errors"
	"time"
)

// SetCommand sets and clears bits of the command register of a device. It fails with
// ErrDeviceGone if the register reads as all ones.
func SetCommand(dev Device, set, clear uint16) error {
	var b [2]byte
	if err := dev.ReadRegion(RegionConfig, ConfigCommand, b[:]); err != nil {
		return err
	}
	v := binary.LittleEndian.Uint16(b[:])
	if v == 0xffff {
		return ErrDeviceGone
	}
	binary.LittleEndian.PutUint16(b[:], v&^clear|set)
	return dev.WriteRegion(RegionConfig, ConfigCommand, b[:])
}

// Quiesce makes sure that a device reads and writes no memory any more: by stop, its driver's
// way, else by the back end's reset, which may each take as long as timeout, and by taking the
// bus away from it. It fails if none of them works; with ErrDeviceGone if there is no device any
// more, and so none that does DMA.
func Quiesce(dev Device, timeout time.Duration, stop func(context.Context) error) error {
	within := func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return f(ctx)
	}
	err := within(stop)
	gone := errors.Is(err, ErrDeviceGone)
	if err != nil && !gone && dev.Info().Resettable {
		if rerr := within(dev.Reset); rerr != nil {
			err = errors.Join(err, rerr)
		} else {
			err = nil
		}
	}
	berr := SetCommand(dev, 0, CommandBusMaster)
	switch {
	case errors.Is(berr, ErrDeviceGone), gone && berr != nil:
		return ErrDeviceGone
	case err != nil && berr != nil:
		return errors.Join(err, berr)
	}
	return nil
}
