package checker_test

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/concrete"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Bases of the regions: far from each other and from zero, so that no small mistake
// leads from one into another.
const (
	contextBase = 0x1_0000_0000_0000
	stackBase   = 0x2_0000_0000_0000
	frameBase   = 0x3_0000_0000_0000
	valueBase   = 0x4_0000_0000_0000 // times the number of the map, plus one
)

// machine runs one program once, the slow and careful way: it looks at every access of
// every instruction (RFC 9669), and reports what a checked program must never do.
type machine struct {
	// Found decides whether a lookup finds something. It gets the map's index.
	Found func(m int) bool
	// Steps counts the instructions that were run.
	Steps int

	program abi.Program
	starts  map[int]int // index of the instruction at a slot
	slots   []int       // slot of each instruction
	regions []*region
	regs    [11]uint64
	known   [11]bool
}

// newMachine returns a machine with a context and, of frame hooks, a frame. values are the
// bytes of one entry of each map.
func newMachine(p abi.Program, context, frame []byte, values [][]byte) *machine {
	m := &machine{program: p, starts: map[int]int{}, Found: func(int) bool { return true }}
	slot := 0
	for i := range p.Instructions {
		m.starts[slot] = i
		m.slots = append(m.slots, slot)
		slot += int(p.Instructions[i].Width())
	}
	m.regions = []*region{
		{name: "the context", base: contextBase, bytes: context, readOnly: true},
		{name: "the stack", base: stackBase, bytes: make([]byte, abi.StackSize), written: make([]bool, abi.StackSize)},
	}
	if !p.Hook.IsPulse() {
		filter := p.Hook == abi.FilterTx || p.Hook == abi.FilterRx
		m.regions = append(m.regions, &region{name: "the frame", base: frameBase, bytes: frame, readOnly: !filter})
	}
	for i, v := range values {
		m.regions = append(m.regions, &region{
			name: p.Maps[i].Name, base: valueBase * uint64(i+1), bytes: v,
			readOnly: p.Maps[i].Flags&abi.MapReadOnly != 0,
		})
	}
	m.set(asm.R1, contextBase)
	m.set(asm.R10, stackBase+abi.StackSize)
	return m
}

func (m *machine) set(r asm.Register, v uint64) { m.regs[r], m.known[r] = v, true }

func (m *machine) get(r asm.Register) (uint64, error) {
	if !m.known[r] {
		return 0, fmt.Errorf("%v was never written", r)
	}
	return m.regs[r], nil
}

// Run runs the program to its exit and returns the answer, or what it did that no
// checked program does. It gives up after limit instructions.
func (m *machine) Run(limit int) (uint64, error) {
	at := 0
	for {
		if at >= len(m.slots) {
			return 0, errors.New("the program has no more instructions")
		}
		if m.Steps++; m.Steps > limit {
			return 0, fmt.Errorf("more than %d instructions", limit)
		}
		ins := m.program.Instructions[at]
		if ins.OpCode.JumpOp() == asm.Exit {
			return m.get(asm.R0)
		}
		next, err := m.step(at, ins)
		if err != nil {
			return 0, fmt.Errorf("slot %d, %v: %w", m.slots[at], ins, err)
		}
		at = next
	}
}

func (m *machine) step(at int, ins asm.Instruction) (int, error) {
	switch class := ins.OpCode.Class(); {
	case class.IsALU():
		return at + 1, m.arithmetic(ins)
	case class.IsJump():
		return m.jump(at, ins)
	case class == asm.LdClass:
		v := uint64(ins.Constant)
		switch index := uint64(uint32(v)); ins.Src {
		case asm.PseudoMapFD:
			v = index
		case asm.PseudoMapValue:
			v = valueBase*(index+1) + v>>32
		}
		m.set(ins.Dst, v)
		return at + 1, nil
	case class == asm.LdXClass:
		return at + 1, m.load(ins)
	}
	return at + 1, m.store(ins)
}

// second returns the second operand.
func (m *machine) second(ins asm.Instruction) (uint64, error) {
	if ins.OpCode.Source() == asm.RegSource {
		return m.get(ins.Src)
	}
	return uint64(ins.Constant), nil
}

func (m *machine) arithmetic(ins asm.Instruction) error {
	op := ins.OpCode.ALUOp()
	wide := ins.OpCode.Class() == asm.ALU64Class
	first := m.regs[ins.Dst]
	moves := op == asm.Mov || op == asm.MovSX8 || op == asm.MovSX16 || op == asm.MovSX32
	if !m.known[ins.Dst] && !moves {
		return fmt.Errorf("%v was never written", ins.Dst)
	}
	if op == asm.Swap {
		m.set(ins.Dst, concrete.Swap(first, ins.Constant, wide || ins.OpCode.Endianness() == asm.BE))
		return nil
	}
	b, err := m.second(ins)
	if err != nil {
		return err
	}
	if wide {
		m.set(ins.Dst, concrete.Compute(op, first, b))
	} else {
		m.set(ins.Dst, concrete.Compute32(op, first, b))
	}
	return nil
}

func (m *machine) jump(at int, ins asm.Instruction) (int, error) {
	narrow := ins.OpCode.Class() == asm.Jump32Class
	off := int(ins.Offset)
	switch op := ins.OpCode.JumpOp(); op {
	case asm.Call:
		return at + 1, m.call(abi.Helper(ins.Constant))
	case asm.Ja:
		if narrow {
			off = int(ins.Constant)
		}
	default:
		a, err := m.get(ins.Dst)
		if err != nil {
			return 0, err
		}
		b, err := m.second(ins)
		if err != nil {
			return 0, err
		}
		if !concrete.Holds(op, a, b, narrow) {
			return at + 1, nil
		}
	}
	to, ok := m.starts[m.slots[at]+1+off]
	if !ok {
		return 0, errors.New("jump to where no instruction starts")
	}
	return to, nil
}

func (m *machine) load(ins asm.Instruction) error {
	base, err := m.get(ins.Src)
	if err != nil {
		return err
	}
	address, size := base+uint64(int64(ins.Offset)), ins.OpCode.Size().Sizeof()
	b, err := m.access(address, size, false)
	if err != nil {
		return err
	}
	v := read(b)
	if ins.OpCode.Mode() == asm.MemSXMode {
		shift := 64 - 8*size
		v = uint64(int64(v<<shift) >> shift)
	}
	if !m.program.Hook.IsPulse() {
		switch address - contextBase {
		case abi.FrameData, abi.FrameMeta:
			v = frameBase
		case abi.FrameDataEnd:
			v = frameBase + uint64(len(m.regions[2].bytes))
		}
	}
	m.set(ins.Dst, v)
	return nil
}

func (m *machine) store(ins asm.Instruction) error {
	base, err := m.get(ins.Dst)
	if err != nil {
		return err
	}
	v := uint64(ins.Constant)
	if ins.OpCode.Class() == asm.StXClass {
		if v, err = m.get(ins.Src); err != nil {
			return err
		}
	}
	size := ins.OpCode.Size().Sizeof()
	address := base + uint64(int64(ins.Offset))
	if atomic := ins.OpCode.AtomicOp(); atomic != asm.InvalidAtomic {
		return m.atomic(atomic, ins, address, size, v)
	}
	b, err := m.access(address, size, true)
	if err == nil {
		write(b, v)
	}
	return err
}

func (m *machine) atomic(op asm.AtomicOp, ins asm.Instruction, address uint64, size int, v uint64) error {
	if address%uint64(size) != 0 {
		return fmt.Errorf("atomic operation on %d bytes at %#x", size, address)
	}
	if _, err := m.access(address, size, false); err != nil {
		return err
	}
	b, err := m.access(address, size, true)
	if err != nil {
		return err
	}
	old, expected := read(b), m.regs[asm.R0]
	if size == 4 {
		expected = uint64(uint32(expected))
	}
	write(b, concrete.Change(op, old, v, expected))
	switch {
	case op == asm.CmpXchg && !m.known[asm.R0]:
		return errors.New("r0 was never written")
	case op == asm.CmpXchg:
		m.set(asm.R0, old)
	case op == asm.Xchg, op == asm.FetchAdd, op == asm.FetchAnd, op == asm.FetchOr, op == asm.FetchXor:
		m.set(ins.Src, old)
	}
	return nil
}

func (m *machine) call(h abi.Helper) error {
	answer := uint64(0)
	if h != abi.HelperTime {
		index, err := m.get(asm.R1)
		if err != nil || index >= uint64(len(m.program.Maps)) {
			return fmt.Errorf("r1 is not a map: %w", err)
		}
		described := m.program.Maps[index]
		sizes := map[asm.Register]uint32{asm.R2: described.Key}
		if h == abi.HelperMapUpdate {
			sizes[asm.R3] = described.Value
		}
		for r, size := range sizes {
			address, err := m.get(r)
			if err == nil {
				_, err = m.access(address, int(size), false)
			}
			if err != nil {
				return fmt.Errorf("argument %v: %w", r, err)
			}
		}
		if h == abi.HelperMapLookup && m.Found(int(index)) {
			answer = valueBase * (index + 1)
		}
	}
	for r := asm.R1; r <= asm.R5; r++ {
		m.known[r] = false
	}
	m.set(asm.R0, answer)
	return nil
}

// region is memory that a program may access.
type region struct {
	name     string
	base     uint64
	bytes    []byte
	written  []bool // nil: all of it
	readOnly bool
}

// access returns the bytes at an address, or says why there are none.
func (m *machine) access(address uint64, size int, store bool) ([]byte, error) {
	for _, r := range m.regions {
		off := address - r.base
		if off >= uint64(len(r.bytes)) || off+uint64(size) > uint64(len(r.bytes)) {
			continue
		}
		if store && r.readOnly {
			return nil, fmt.Errorf("store of %d bytes at %d of %s, which is read only", size, off, r.name)
		}
		for i := range r.written {
			if inside := uint64(i) >= off && uint64(i) < off+uint64(size); inside && store {
				r.written[i] = true
			} else if inside && !r.written[i] {
				return nil, fmt.Errorf("load of %d bytes at %d of %s, of which %d was never written", size, off, r.name, i)
			}
		}
		return r.bytes[off : off+uint64(size)], nil
	}
	return nil, fmt.Errorf("access of %d bytes at %#x, where there is nothing", size, address)
}

func read(b []byte) uint64 {
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:])
}

func write(b []byte, v uint64) {
	var wide [8]byte
	binary.LittleEndian.PutUint64(wide[:], v)
	copy(b, wide[:])
}
