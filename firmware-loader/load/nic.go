package load

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// NIC has the operations of a NIC that a load needs. Register offsets are those within the
// processor block. One goroutine uses it at a time.
type NIC interface {
	ReadProcessor(register uint32) (uint32, error)
	WriteProcessor(register, value uint32) error
	ReadSRAM(offset uint64, p []byte) error
	WriteSRAM(offset uint64, p []byte) error
}

// allOnes is read from a NIC that is not there.
const allOnes = math.MaxUint32

// read reads a register. All ones may be what it holds: that the NIC is gone is
// known from PROC_STATUS, which never is all ones (SPEC.md 2.1).
func read(nic NIC, register uint32) (uint32, error) {
	v, err := nic.ReadProcessor(register)
	if err != nil || v != allOnes {
		return v, err
	}
	status, err := nic.ReadProcessor(datasheet.RegProcessorStatus)
	if err == nil && status == allOnes {
		err = ErrGone
	}
	return v, err
}

func readAll(nic NIC, registers map[uint32]*uint32) error {
	for register, v := range registers {
		var err error
		if *v, err = read(nic, register); err != nil {
			return err
		}
	}
	return nil
}

func readBytes(nic NIC, register uint32, p []byte) error {
	for i := 0; i < len(p); i += 4 {
		v, err := read(nic, register+uint32(i))
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(p[i:], v)
	}
	return nil
}

// Slots are the places for images in a NIC's SRAM.
type Slots struct {
	Count  uint32
	Base   uint32 // offset of slot 0 in SRAM, bytes
	Size   uint32 // bytes of a slot
	Active uint32 // the slot with the image that runs, or datasheet.NoSlot
	// Previous is the slot with the image that ran before, or datasheet.NoSlot.
	Previous uint32
}

// offset returns where in SRAM a slot starts.
func (s *Slots) offset(slot uint32) uint32 { return s.Base + slot*s.Size }

// readSlots reads and checks what the NIC says about its slots.
func readSlots(nic NIC) (s Slots, err error) {
	if err := readAll(nic, map[uint32]*uint32{
		datasheet.RegSlotCount: &s.Count, datasheet.RegSlotBase: &s.Base, datasheet.RegSlotSize: &s.Size,
		datasheet.RegActiveSlot: &s.Active, datasheet.RegPreviousSlot: &s.Previous,
	}); err != nil {
		return s, err
	}
	bad := func(register string, v uint32) (Slots, error) {
		return s, fmt.Errorf("%w: %s is %#x", ErrRegisters, register, v)
	}
	known := func(slot uint32) bool { return slot < s.Count || slot == datasheet.NoSlot }
	switch {
	case s.Count < 2 || s.Count >= datasheet.NoSlot:
		return bad("SLOT_COUNT", s.Count)
	case s.Size == 0 || s.Size%4 != 0 || uint64(s.Base)+uint64(s.Count)*uint64(s.Size) > math.MaxUint32:
		return bad("SLOT_SIZE", s.Size)
	case s.Base%4 != 0:
		return bad("SLOT_BASE", s.Base)
	case !known(s.Active):
		return bad("ACTIVE_SLOT", s.Active)
	case !known(s.Previous) || s.Previous == s.Active && s.Active != datasheet.NoSlot:
		return bad("PREVIOUS_SLOT", s.Previous)
	}
	return s, nil
}

// free returns a slot whose image does not run: with two slots, the one of the
// previous image.
func (s *Slots) free() uint32 {
	if s.Active == 0 {
		return 1
	}
	return 0
}

// text returns what a register's bytes say, up to the first zero.
func text(p []byte) string {
	p, _, _ = bytes.Cut(p, []byte{0})
	return string(p)
}
