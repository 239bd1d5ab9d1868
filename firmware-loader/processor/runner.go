package processor

import (
	"errors"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// runner is the image that runs, as the engine asks it. All of it is used with the
// engine's lock held. Hooks have the same numbers everywhere (SPEC.md 14.1).
type runner struct {
	state       datasheet.ProcessorState
	faulted     atomic.Bool // the state is so; may be read at any time
	fault       datasheet.ProcessorFault
	faultDetail uint32
	// image is the one that runs or is halted; nil for none.
	image     *machine.Image
	installed engine.HookSet // hooks whose programs have not been stopped
	runs      [abi.Hooks]uint64
	faults    [abi.Hooks]uint64
	minimum   [2]atomic.Uint32 // by direction; may be set at any time
}

var _ engine.Processor = (*runner)(nil)

// setState enters a state in which nothing is wrong.
func (r *runner) setState(s datasheet.ProcessorState) {
	r.enter(s)
	r.fault, r.faultDetail = datasheet.ProcessorFaultNone, 0
}

func (r *runner) enter(s datasheet.ProcessorState) {
	r.state = s
	r.faulted.Store(s == datasheet.ProcessorFaulted)
}

// install has an image decide.
func (r *runner) install(e Engine, img *machine.Image) {
	r.image, r.installed = img, 0
	writes := engine.HookSet(0)
	for hook, p := range img.Programs {
		if p == nil {
			continue
		}
		r.installed |= engine.Hook(hook).Set()
		if p.Writes() {
			writes |= engine.Hook(hook).Set()
		}
	}
	r.setState(datasheet.ProcessorRunning)
	e.SetProcessor(r, r.installed, writes)
}

func (r *runner) fail(e *machine.BootError) {
	r.enter(datasheet.ProcessorFaulted)
	r.fault = e.Fault
	r.faultDetail = datasheet.ProcessorFaultWord(uint8(e.Hook), e.Instruction)
}

// stop notes that a program was stopped. It counts, and the first one is reported.
func (r *runner) stop(hook abi.Hook, err error) {
	r.faults[hook]++
	r.installed &^= engine.Hook(hook).Set()
	if r.state == datasheet.ProcessorFaulted {
		return
	}
	r.enter(datasheet.ProcessorFaulted)
	r.fault = datasheet.ProcessorFaultTrap
	if errors.Is(err, machine.ErrBudget) {
		r.fault = datasheet.ProcessorFaultBudget
	}
	if f, ok := errors.AsType[*machine.Fault](err); ok {
		r.faultDetail = datasheet.ProcessorFaultWord(uint8(hook), uint32(f.Instruction))
	}
}

// Pulse implements engine.Processor.
func (r *runner) Pulse(d engine.Direction, v pipeline.View, frame uint32) (bytes int, ok bool) {
	hook := abi.PulseTx
	if d == engine.Receive {
		hook = abi.PulseRx
	}
	r.runs[hook]++
	n, err := r.image.Programs[hook].Pulse(&abi.PulseContext{
		Length: uint32(v.Length), Arrived: uint32(v.Arrived), Sent: uint32(v.Sent), Queued: uint32(v.Queued),
		Minimum: r.minimum[d].Load(), Frame: frame,
	})
	if err != nil {
		r.stop(hook, err)
		return 0, false
	}
	return n, true
}

// Filter implements engine.Processor.
func (r *runner) Filter(d engine.Direction, frame []byte, number uint32) (a engine.Action, queue uint32, ok bool) {
	hook := abi.FilterTx
	if d == engine.Receive {
		hook = abi.FilterRx
	}
	r.runs[hook]++
	v, err := r.image.Programs[hook].Filter(frame, number)
	if err != nil {
		r.stop(hook, err)
		return engine.FramePass, 0, false
	}
	switch v.Action {
	case abi.FilterDrop:
		return engine.FrameDrop, 0, true
	case abi.FilterRedirect:
		return engine.FrameRedirect, v.Queue, true
	case abi.FilterAborted:
		r.faults[hook]++
	}
	return engine.FramePass, 0, true
}

// Demultiplex implements engine.Processor.
func (r *runner) Demultiplex(frame []byte, queue uint32) (to, entry uint32, ok bool) {
	r.runs[abi.DemuxRx]++
	d, err := r.image.Programs[abi.DemuxRx].Demultiplex(frame, queue)
	if err != nil {
		r.stop(abi.DemuxRx, err)
		return engine.DefaultQueue, engine.DefaultQueue, false
	}
	return d.Queue, d.Entry, true
}

// Misled implements engine.Processor.
func (r *runner) Misled(h engine.Hook) { r.faults[h]++ }
