package driver

import (
	"context"
	"errors"
	"fmt"
	"runtime/trace"

	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// inProgram carries out f, an operation on the processor block.
func (n *NIC) inProgram(ctx context.Context, op string, f func() error) error {
	return n.alone(ctx, op, datasheet.BlockProcessor, &n.programs.mu, "it has no NIC processor",
		"this device does what it has built in; only devices with a processor block run control programs", f)
}

// LoadProgram puts a control program into the device and starts it, see load.Load.
// Whatever fails, what ran before runs again. Errors wrap *load.Error; a device
// without a processor is ErrNotSupported.
func (n *NIC) LoadProgram(ctx context.Context, img load.Image, o load.Options) (load.Status, error) {
	return n.onProgram(ctx, "load program", func(nic load.NIC) (load.Status, error) {
		s, err := load.Load(ctx, nic, img, o)
		if err == nil {
			n.programs.loaded[1] = n.programs.loaded[0]
			n.programs.loaded[0].Digest, n.programs.loaded[0].Maps = img.Digest, img.Maps
		}
		return s, err
	})
}

// RollBackProgram starts the control program that ran before the present one, see
// load.Rollback.
func (n *NIC) RollBackProgram(ctx context.Context, o load.Options) (load.Status, error) {
	return n.onProgram(ctx, "roll program back", func(nic load.NIC) (load.Status, error) { return load.Rollback(ctx, nic, o) })
}

// UnloadProgram returns the device to its built-in behaviour, see load.Unload.
func (n *NIC) UnloadProgram() (load.Status, error) {
	return n.onProgram(n.background, "unload program", load.Unload)
}

// ProgramStatus asks the device for its control program.
func (n *NIC) ProgramStatus() (load.Status, error) {
	return n.onProgram(n.background, "query program", load.ReadStatus)
}

func (n *NIC) onProgram(ctx context.Context, op string, f func(load.NIC) (load.Status, error)) (s load.Status, err error) {
	defer trace.StartRegion(ctx, "NIC program").End()
	err = n.inProgram(ctx, op, func() (err error) {
		s, err = f(processor{n})
		return err
	})
	return s, err
}

// ProgramMap is a map of the control program that runs, see load.Map. Methods may
// be called from several goroutines.
type ProgramMap struct {
	nic *NIC
	m   *load.Map
}

// ProgramMap returns map number index of the control program that runs, which has
// maps as its image lists them. Errors wrap load.ErrMap.
func (n *NIC) ProgramMap(maps []abi.Map, index int) (m *ProgramMap, err error) {
	err = n.inProgram(n.background, "open map", func() error {
		opened, err := load.OpenMap(processor{n}, maps, index)
		if err == nil {
			m = &ProgramMap{n, opened}
		}
		return err
	})
	return m, err
}

// Spec returns the map's name, type and sizes.
func (m *ProgramMap) Spec() abi.Map { return m.m.Spec() }

// Lookup reads the value of a key, see load.Map.Lookup.
func (m *ProgramMap) Lookup(key, value []byte) error {
	return m.do("look up", func() error { return m.m.Lookup(key, value) })
}

// Update writes the value of a key, see load.Map.Update.
func (m *ProgramMap) Update(key, value []byte, flags uint8) error {
	return m.do("update map", func() error { return m.m.Update(key, value, flags) })
}

// Delete removes a key, see load.Map.Delete.
func (m *ProgramMap) Delete(key []byte) error {
	return m.do("delete key", func() error { return m.m.Delete(key) })
}

// Each calls f with the entries in an order of the NIC's, until it returns false. f must not
// keep the slices. Entries that come or go meanwhile may be missed. Errors wrap
// load.ErrNoProgram, and load.ErrRegisters if the NIC lists more than the map can hold.
func (m *ProgramMap) Each(f func(key, value []byte) bool) error {
	spec := m.Spec()
	key, value := make([]byte, spec.Key), make([]byte, spec.Value)
	// Twice as many: keys that move while they are listed may come again.
	for n := range 2 * uint64(spec.Entries) {
		if err := m.do("next key", func() error { return m.m.Next(key, n == 0) }); errors.Is(err, load.ErrNoEntry) {
			return nil
		} else if err != nil {
			return err
		}
		if err := m.Lookup(key, value); err == nil && !f(key, value) {
			return nil
		} else if err != nil && !errors.Is(err, load.ErrNoEntry) {
			return err
		}
	}
	return fmt.Errorf("%w: map %s has room for %d entries and lists more", load.ErrRegisters, spec.Name, spec.Entries)
}

func (m *ProgramMap) do(op string, f func() error) error {
	return m.nic.inProgram(m.nic.background, op, f)
}

// processor is the device as a load sees it: a load.NIC.
type processor struct{ n *NIC }

func (p processor) ReadProcessor(register uint32) (uint32, error) {
	return p.n.regs.read(p.n.background, datasheet.BlockProcessor, uint64(register))
}

func (p processor) WriteProcessor(register, v uint32) error {
	return p.n.regs.write(datasheet.BlockProcessor, uint64(register), v)
}

// ReadSRAM is described at load.NIC. The device says where its slots are, so the
// offset is checked.
func (p processor) ReadSRAM(offset uint64, b []byte) error {
	return p.n.inSRAM(offset, b, p.n.bar4.read)
}

func (p processor) WriteSRAM(offset uint64, b []byte) error {
	return p.n.inSRAM(offset, b, p.n.bar4.write)
}
