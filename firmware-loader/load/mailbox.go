package load

import (
	"fmt"
	"math"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Reasons why a map operation fails, as errors.Is finds them, and their VIA codes.
var (
	ErrNoEntry  = descriptors.ErrInvalidParameter.Finer("no such key")
	ErrPresent  = descriptors.ErrInvalidParameter.Finer("the key is there already")
	ErrFull     = descriptors.ErrResource.Finer("the map is full")
	ErrReadOnly = descriptors.ErrInvalidParameter.Finer("the map is read-only")
	// ErrNoProgram: no image runs, so there are no maps.
	ErrNoProgram = descriptors.ErrInvalidState.Finer("no control program runs")
	// ErrMap: the NIC knows no such map, or the mailbox is too small for it.
	ErrMap = descriptors.ErrInvalidParameter.Finer("no such map")
	// ErrSize: key or value are not of the map's size.
	ErrSize = descriptors.ErrInvalidParameter.Finer("wrong size")
)

var mailboxErrors = map[datasheet.MailboxResult]error{
	datasheet.MailboxNotAllowed: ErrReadOnly, datasheet.MailboxNoEntry: ErrNoEntry, datasheet.MailboxFull: ErrFull,
	datasheet.MailboxPresent: ErrPresent, datasheet.MailboxNoProgram: ErrNoProgram, datasheet.MailboxBad: ErrMap,
}

// Map is a map of the image that runs in a NIC, as the host reads and writes it
// through the mailbox. Each operation is one that the program sees whole or not at
// all. The image must be the one that the map was found in: see Status.Digest.
type Map struct {
	nic     NIC
	spec    abi.Map
	index   uint16
	mailbox uint64 // offset in SRAM
	value   uint64 // offset of values in the mailbox
}

// OpenMap returns map number index of the image that runs, which has maps as the
// image's Spec lists them.
func OpenMap(nic NIC, maps []abi.Map, index int) (*Map, error) {
	if index < 0 || index >= len(maps) || index > math.MaxUint16 {
		return nil, fmt.Errorf("%w: number %d of %d", ErrMap, index, len(maps))
	}
	var offset, size uint32
	if err := readAll(nic, map[uint32]*uint32{
		datasheet.RegMailboxOffset: &offset, datasheet.RegMailboxSize: &size,
	}); err != nil {
		return nil, err
	}
	m := &Map{nic: nic, spec: maps[index], index: uint16(index), mailbox: uint64(offset)}
	m.value = (uint64(m.spec.Key) + 7) &^ 7
	if need := m.value + uint64(m.spec.Value); need > uint64(size) {
		return nil, fmt.Errorf("%w: %s needs %d bytes of mailbox, there are %d", ErrMap, m.spec.Name, need, size)
	}
	return m, nil
}

// Spec returns the map's name, type and sizes.
func (m *Map) Spec() abi.Map { return m.spec }

// Lookup reads the value of a key. Errors wrap ErrNoEntry, ErrSize, ErrNoProgram.
func (m *Map) Lookup(key, value []byte) error {
	if err := m.sizes(key, value); err != nil {
		return err
	}
	if err := m.nic.WriteSRAM(m.mailbox, key); err != nil {
		return err
	}
	if err := m.run(datasheet.MailboxLookup, datasheet.MailboxAny); err != nil {
		return err
	}
	return m.nic.ReadSRAM(m.mailbox+m.value, value)
}

// Flags of Update, as of bpf_map_update_elem (linux/bpf.h).
const (
	Any    = datasheet.MailboxAny    // BPF_ANY
	Absent = datasheet.MailboxAbsent // BPF_NOEXIST: the key has no value yet
	Exists = datasheet.MailboxExists // BPF_EXIST: the key has one
)

// Update writes the value of a key. flags is Any, Absent or Exists. Errors wrap ErrPresent, ErrNoEntry, ErrFull, ErrReadOnly,
// ErrSize, ErrNoProgram; they change nothing.
func (m *Map) Update(key, value []byte, flags uint8) error {
	if err := m.sizes(key, value); err != nil {
		return err
	}
	if err := m.nic.WriteSRAM(m.mailbox, key); err != nil {
		return err
	}
	if err := m.nic.WriteSRAM(m.mailbox+m.value, value); err != nil {
		return err
	}
	return m.run(datasheet.MailboxUpdate, flags)
}

// Delete removes a key. Errors wrap ErrNoEntry, ErrSize, ErrNoProgram.
func (m *Map) Delete(key []byte) error {
	if err := m.sizes(key, nil); err != nil {
		return err
	}
	if err := m.nic.WriteSRAM(m.mailbox, key); err != nil {
		return err
	}
	return m.run(datasheet.MailboxDelete, datasheet.MailboxAny)
}

// Next replaces key by the one after it, in an order of the NIC's own; first says
// to begin. It returns ErrNoEntry at the end. Keys that come or go meanwhile may be
// missed.
func (m *Map) Next(key []byte, first bool) error {
	if err := m.sizes(key, nil); err != nil {
		return err
	}
	op := datasheet.MailboxFirst
	if !first {
		op = datasheet.MailboxNext
		if err := m.nic.WriteSRAM(m.mailbox, key); err != nil {
			return err
		}
	}
	if err := m.run(op, datasheet.MailboxAny); err != nil {
		return err
	}
	return m.nic.ReadSRAM(m.mailbox, key)
}

func (m *Map) sizes(key, value []byte) error {
	if len(key) != int(m.spec.Key) || value != nil && len(value) != int(m.spec.Value) {
		return fmt.Errorf("%w: key %d and value %d bytes, %s has %d and %d", ErrSize, len(key), len(value), m.spec.Name, m.spec.Key, m.spec.Value)
	}
	return nil
}

// run has the NIC carry an operation out. The result stands when the write has
// taken effect, which reading it back ensures.
func (m *Map) run(op datasheet.MailboxOp, flags uint8) error {
	if err := m.nic.WriteProcessor(datasheet.RegMailboxCommand, datasheet.MailboxWord(op, flags, m.index)); err != nil {
		return err
	}
	v, err := read(m.nic, datasheet.RegMailboxResult)
	if err != nil || v == uint32(datasheet.MailboxOK) {
		return err
	}
	if known := mailboxErrors[datasheet.MailboxResult(v)]; known != nil {
		return fmt.Errorf("map %s: %w", m.spec.Name, known)
	}
	return fmt.Errorf("%w: MAILBOX_RESULT is %d", ErrRegisters, v)
}
