package machine

import (
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// MaxFrame is the longest frame in bytes that a program can be asked about, one
// less than a region has.
const MaxFrame = offsetMask

// Program is a program of a hook, ready to run.
type Program struct {
	hook   abi.Hook
	budget int // instructions of a run
	code   []op
	slots  []int32 // where each of them starts
	maps   []*Map
	clock  func() uint64

	registers [registerCount]uint64
	// read and write have the places that loads and stores may use.
	read, write regions
	context     [max(abi.PulseSize, abi.FrameContextSize)]byte
	stack       [abi.StackSize]byte
	used        []byte // the part of stack that a run may use
	// writes: the program may store to other memory than the stack, such as the frame. It errs
	// on the side of true.
	writes bool
}

// Compile decodes a program. maps are those of its image, in the same order; clock
// is the device's clock, in nanoseconds. Errors are *checker.Refusal, and ErrMap for
// maps that are not the program's.
func Compile(p abi.Program, maps []*Map, clock func() uint64) (*Program, error) {
	if p.Hook >= abi.Hooks {
		return nil, fmt.Errorf("compile: no such hook: %v", p.Hook)
	}
	if len(maps) != len(p.Maps) || len(maps) > abi.MaxMaps {
		return nil, fmt.Errorf("%v: %w: %d maps for a program with %d", p.Hook, ErrMap, len(maps), len(p.Maps))
	}
	decoded, err := checker.Decode(p)
	if err != nil {
		return nil, err
	}
	prog := &Program{hook: p.Hook, budget: p.Hook.Budget(), maps: maps, clock: clock}
	slot := int32(0)
	for i := range decoded {
		o := opOf(i, &decoded[i])
		prog.code, prog.slots = append(prog.code, o), append(prog.slots, slot)
		slot += int32(p.Instructions[i].Width())
		prog.writes = prog.writes || o.code >= opStore8 && o.code <= opAtomic && o.src != frameRegister
		if o.src == frameRegister || o.dst == frameRegister {
			prog.used = prog.stack[:]
		}
	}
	merge(prog.code)
	prog.connect()
	return prog, nil
}

// limitStack says how many bytes of stack a run uses at most. It saves clearing the
// others.
func (p *Program) limitStack(n int) {
	p.used = p.stack[len(p.stack)-min(max(n, 0), len(p.stack)):]
}

// connect lays out what the program sees.
func (p *Program) connect() {
	size := abi.FrameContextSize
	if p.hook.IsPulse() {
		size = abi.PulseSize
	}
	p.read[regionContext] = p.context[:size]
	p.read[regionStack], p.write[regionStack] = p.stack[:], p.stack[:]
	for i, m := range p.maps {
		p.read[regionMaps+i] = m.values
		if m.spec.Flags&abi.MapReadOnly == 0 {
			p.write[regionMaps+i] = m.values
		}
	}
	p.registers[frameRegister] = regionStack<<regionShift + abi.StackSize
}

// Hook returns the hook whose program it is.
func (p *Program) Hook() abi.Hook { return p.hook }

// Pulse asks a pulse program how many bytes may go now: 0, which means wait, to
// c.Arrived - c.Sent. The program's answer is R0, unsigned; it is held to the rules
// that abi.PulseContext states. Errors are *Fault.
func (p *Program) Pulse(c *abi.PulseContext) (int, error) {
	b := &p.context
	binary.LittleEndian.PutUint32(b[abi.PulseLength:], c.Length)
	binary.LittleEndian.PutUint32(b[abi.PulseArrived:], c.Arrived)
	binary.LittleEndian.PutUint32(b[abi.PulseSent:], c.Sent)
	binary.LittleEndian.PutUint32(b[abi.PulseQueued:], c.Queued)
	binary.LittleEndian.PutUint32(b[abi.PulseMinimum:], c.Minimum)
	binary.LittleEndian.PutUint32(b[abi.PulseFrame:], c.Frame)
	p.registers[1] = regionContext << regionShift
	answer, how := p.run()
	if how != answered {
		return 0, p.fault(answer, how)
	}
	if c.Sent >= c.Arrived {
		return 0, nil
	}
	available := c.Arrived - c.Sent
	if answer > uint64(available) || answer == 0 && c.Arrived >= c.Length {
		return int(available), nil
	}
	return int(answer), nil
}

// Verdict is a filter program's decision about a frame.
type Verdict struct {
	// Action is abi.FilterDrop, FilterPass, FilterRedirect or FilterAborted.
	Action uint8
	Queue  uint32 // of FilterRedirect: a receive queue, 24 bits
}

// Filter asks a filter program about a frame, which it may change in place. queue is
// abi.FrameQueue of the context. The program's answer is the low 32 bits of R0.
// Errors are *Fault.
func (p *Program) Filter(frame []byte, queue uint32) (Verdict, error) {
	answer, err := p.frame(frame, queue, true)
	if err != nil {
		return Verdict{}, err
	}
	switch v := (Verdict{Action: uint8(answer), Queue: uint32(answer) >> 8}); v.Action {
	case abi.FilterDrop, abi.FilterPass:
		return Verdict{Action: v.Action}, nil
	case abi.FilterRedirect:
		if p.hook == abi.FilterRx {
			return v, nil
		}
	}
	return Verdict{Action: abi.FilterAborted}, nil
}

// Destination is a demultiplexing program's decision about a frame. Either part
// may be abi.DemuxDefault.
type Destination struct {
	Queue uint32 // receive queue
	Entry uint32 // of its payload table
}

// Demultiplex asks a demultiplexing program about a frame, which it may not change.
// Errors are *Fault.
func (p *Program) Demultiplex(frame []byte, queue uint32) (Destination, error) {
	answer, err := p.frame(frame, queue, false)
	return Destination{Queue: uint32(answer), Entry: uint32(answer >> 32)}, err
}

// frame runs the program of a frame hook.
func (p *Program) frame(frame []byte, queue uint32, change bool) (uint64, error) {
	if len(frame) > MaxFrame {
		return 0, &Fault{Hook: p.hook, Reason: ErrTrap}
	}
	const data = regionFrame << regionShift
	end := data + uint32(len(frame))
	b := &p.context
	binary.LittleEndian.PutUint32(b[abi.FrameData:], data)
	binary.LittleEndian.PutUint32(b[abi.FrameDataEnd:], end)
	binary.LittleEndian.PutUint32(b[abi.FrameMeta:], data)
	binary.LittleEndian.PutUint32(b[abi.FrameInterface:], 0)
	binary.LittleEndian.PutUint32(b[abi.FrameQueue:], queue)
	// The slice stays until the next run; nothing uses it in between.
	p.read[regionFrame], p.write[regionFrame] = frame, nil
	if change {
		p.write[regionFrame] = frame
	}
	p.registers[1] = regionContext << regionShift
	answer, how := p.run()
	if how != answered {
		return 0, p.fault(answer, how)
	}
	return answer, nil
}

// fault describes a run that ended at an op.
func (p *Program) fault(at uint64, how outcome) *Fault {
	f := &Fault{Hook: p.hook, Reason: ErrTrap}
	if how == exhausted {
		f.Reason = ErrBudget
	}
	if at < uint64(len(p.slots)) {
		f.Instruction = int(p.slots[at])
	}
	return f
}

// Writes reports whether the program may store to other memory than the stack.
func (p *Program) Writes() bool { return p.writes }

type outcome uint8

const (
	answered outcome = iota
	exhausted
	trapped
	called // a call or another slow op is to be carried out
)

// run runs the program from its start. Unless it answered, the number is that of
// the op at fault.
func (p *Program) run() (answer uint64, how outcome) {
	clear(p.used)
	value, pc, left, how := p.interpret(0, p.budget)
	for how == called {
		if !p.slow(&p.code[pc-1], value) {
			return uint64(pc - 1), trapped
		}
		value, pc, left, how = p.interpret(pc, left)
	}
	if how != answered {
		return uint64(pc - 1), how
	}
	return value, answered
}

// slow carries out an op for which interpret does not keep its variables in
// registers. It returns false for a trap.
func (p *Program) slow(o *op, b uint64) (ok bool) {
	switch o.code {
	case opLoadSigned:
		p.registers[o.dst], ok = p.read.loadSigned(b, uint32(o.aux))
	case opAtomic:
		ok = p.atomic(o, b)
	case opCall:
		ok = p.call(b)
	}
	return ok
}
