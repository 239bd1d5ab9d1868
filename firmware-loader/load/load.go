// Package load puts control programs into a NIC, by the protocol of
// descriptors/SPEC.md section 14: the image goes into the slot that is not in use
// while the old one goes on running, is read back and compared, and only then takes
// its place. Whatever fails, at whatever step, what ran before runs again, or the
// NIC's built-in behaviour if nothing ran or nothing else is left.
//
// Programs call it through NIC.LoadProgram of package via, which has an example: [Flat]
// makes the argument of a linked image. [Load] itself works on whatever implements [NIC].
//
// The NIC is not trusted: what it says about slots is checked, each wait has a
// deadline, and an image counts as loaded only when the NIC reports its name,
// version and digest.
package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/failure"
	"github.com/trapeze-nic/trapeze/internal/pause"
)

// Options of Load and Rollback. The zero value is good.
type Options struct {
	// Timeout bounds each wait for the processor; DefaultTimeout if zero.
	Timeout time.Duration
	// Progress, if not nil, is told how many of all bytes to write and to read
	// back are done.
	Progress func(done, total int)
}

// DefaultTimeout is the time that a processor may take to halt or to become ready. The
// emulated one takes microseconds; a choice of ours with room for slow ones.
const DefaultTimeout = 2 * time.Second

// chunk is the number of bytes that are written between two looks at the context.
const chunk = 16 << 10

type session struct {
	nic     NIC
	options Options
	before  Status
	step    string
	// halted: the processor was told to halt, so what ran before must be started
	// again if anything fails.
	halted bool
}

// Load puts img into the NIC and starts it. On success the status is the one that the NIC
// reports then. Errors are *Error; those of the image itself leave the NIC
// untouched. If ctx ends, the load fails and what ran before is put back.
func Load(ctx context.Context, nic NIC, img Image, o Options) (Status, error) {
	s := &session{nic: nic, options: o, step: stepIdentify}
	if n := len(img.Bytes); n == 0 || uint64(n) > uint64(img.SRAM) {
		return Status{}, s.fail(fmt.Errorf("%w: it has %d bytes, its SRAM %d", ErrImage, n, img.SRAM))
	}
	if err := s.identify(); err != nil {
		return Status{}, s.fail(err)
	}
	if err := img.Suits(s.before.ABI, s.before.Device, s.before.Slots.Size); err != nil {
		return s.before, s.fail(err)
	}
	slot := s.before.Slots.free()
	if err := s.store(ctx, &img, s.before.Slots.offset(slot)); err != nil {
		return s.before, s.fail(err)
	}
	return s.run(ctx, slot, &img)
}

// Rollback starts the image that ran before the present one. If that fails, the
// present one is started again. Errors are *Error, with ErrNoPrevious if there is none.
func Rollback(ctx context.Context, nic NIC, o Options) (Status, error) {
	s := &session{nic: nic, options: o, step: stepIdentify}
	if err := s.identify(); err != nil {
		return Status{}, s.fail(err)
	}
	previous := s.before.Slots.Previous
	if previous == datasheet.NoSlot {
		return s.before, s.fail(ErrNoPrevious)
	}
	return s.run(ctx, previous, nil)
}

// run starts what is in a slot, and ends the session if that fails.
func (s *session) run(ctx context.Context, slot uint32, img *Image) (Status, error) {
	after, err := s.start(ctx, s.before.Slots.offset(slot), img)
	if err != nil {
		return s.before, s.fail(err)
	}
	return after, nil
}

// Unload makes the NIC forget its control program: the built-in behaviour applies.
// The images stay in their slots.
func Unload(nic NIC) (Status, error) {
	if err := nic.WriteProcessor(datasheet.RegProcessorControl, datasheet.ProcessorUseBuiltIn); err != nil {
		return Status{}, &Error{Err: &failure.Error{Op: stepRun, Err: err}, Outcome: OutcomeUnknown}
	}
	return ReadStatus(nic)
}

func (s *session) identify() (err error) {
	if s.options.Timeout <= 0 {
		s.options.Timeout = DefaultTimeout
	}
	s.before, err = ReadStatus(s.nic)
	return err
}

// store writes the image into a slot at base and compares.
func (s *session) store(ctx context.Context, img *Image, base uint32) error {
	total, done := 2*len(img.Bytes), 0
	progress := func(n int) {
		if done += n; s.options.Progress != nil {
			s.options.Progress(done, total)
		}
	}
	back := make([]byte, chunk)
	for _, pass := range []struct {
		step string
		do   func(offset uint64, p []byte) error
	}{
		{stepWrite, s.nic.WriteSRAM},
		{stepReadBack, func(offset uint64, p []byte) error {
			got := back[:len(p)]
			if err := s.nic.ReadSRAM(offset, got); err != nil {
				return err
			}
			if !bytes.Equal(got, p) {
				return fmt.Errorf("%w between %#x and %#x", ErrReadBack, offset, offset+uint64(len(p)))
			}
			return nil
		}},
	} {
		s.step = pass.step
		for at := 0; at < len(img.Bytes); at += chunk {
			if err := ctx.Err(); err != nil {
				return err
			}
			part := img.Bytes[at:min(at+chunk, len(img.Bytes))]
			if err := pass.do(uint64(base)+uint64(at), part); err != nil {
				return err
			}
			progress(len(part))
		}
	}
	return nil
}

// start halts the processor and has it run what is at entry. With img the NIC must
// report that image.
func (s *session) start(ctx context.Context, entry uint32, img *Image) (Status, error) {
	s.step, s.halted = stepHalt, true
	if err := s.nic.WriteProcessor(datasheet.RegProcessorControl, datasheet.ProcessorHalt); err != nil {
		return Status{}, err
	}
	if err := s.await(ctx, func(state datasheet.ProcessorState) (bool, error) {
		return state != datasheet.ProcessorRunning && state != datasheet.ProcessorStarting, nil
	}); err != nil {
		return Status{}, err
	}
	s.step = stepEntry
	if err := s.nic.WriteProcessor(datasheet.RegProcessorEntry, entry); err != nil {
		return Status{}, err
	}
	if is, err := read(s.nic, datasheet.RegProcessorEntry); err != nil {
		return Status{}, err
	} else if is != entry {
		return Status{}, fmt.Errorf("%w: PROC_ENTRY is %#x after %#x was written", ErrRegisters, is, entry)
	}
	s.step = stepRun
	if err := s.nic.WriteProcessor(datasheet.RegProcessorControl, datasheet.ProcessorRun); err != nil {
		return Status{}, err
	}
	s.step = stepReady
	if err := s.await(ctx, func(state datasheet.ProcessorState) (bool, error) {
		if state == datasheet.ProcessorFaulted {
			fault, err := readFault(s.nic)
			if err == nil && fault == nil {
				err = fmt.Errorf("%w: faulted without a fault", ErrRegisters)
			}
			if err == nil {
				err = fault
			}
			return false, err
		}
		word, err := read(s.nic, datasheet.RegProcessorReady)
		return word == datasheet.ProcessorReady && state == datasheet.ProcessorRunning, err
	}); err != nil {
		return Status{}, err
	}
	s.step = stepReport
	after, err := ReadStatus(s.nic)
	if err == nil && img != nil {
		err = img.runs(&after)
	}
	return after, err
}

// Times between two reads of the processor's state: the first, and what they grow to.
// They are choices of ours: an emulated processor is ready in microseconds, and one that
// takes long is read seldom.
const (
	firstPause   = 20 * time.Microsecond
	longestPause = 2 * time.Millisecond
)

// await looks at the processor's state until done says so.
func (s *session) await(ctx context.Context, done func(datasheet.ProcessorState) (bool, error)) error {
	end := time.Now().Add(s.options.Timeout)
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		// The clock first: a goroutine that was not scheduled for long looks once
		// more before it gives up.
		late := time.Now().After(end)
		word, err := read(s.nic, datasheet.RegProcessorStatus)
		if err != nil {
			return err
		}
		state := datasheet.ProcessorState(word & datasheet.ProcessorStateMask)
		if state > datasheet.ProcessorFaulted {
			return fmt.Errorf("%w: PROC_STATUS is %#x", ErrRegisters, word)
		}
		if ok, err := done(state); ok || err != nil {
			return err
		}
		if late {
			return fmt.Errorf("%w: it is %s after %v", ErrNotReady, state, s.options.Timeout)
		}
		if pause.For(ctx, wait) != nil {
			return ctx.Err()
		}
	}
}

// fail ends the session: it puts back what ran before, if that was interrupted.
func (s *session) fail(cause error) error {
	e := &Error{Err: &failure.Error{Op: s.step, Err: cause}, Outcome: OutcomeUntouched}
	if !s.halted {
		if errors.Is(cause, ErrGone) {
			e.Outcome = OutcomeUnknown
		}
		return e
	}
	e.Outcome, e.Restore = s.restore()
	return e
}

// restore starts the image that ran when the session began, and the built-in
// behaviour if there was none or it does not start. The caller's context may have
// ended; the waits have deadlines of their own.
func (s *session) restore() (Outcome, error) {
	var problem error
	if s.before.Slots.Active != datasheet.NoSlot && s.before.State == datasheet.ProcessorRunning {
		old := running(&s.before)
		failed := s.step
		_, problem = s.start(context.Background(), s.before.Slots.offset(s.before.Slots.Active), &old)
		s.step = failed
		if problem == nil {
			return OutcomeRestored, nil
		}
	}
	if err := s.nic.WriteProcessor(datasheet.RegProcessorControl, datasheet.ProcessorUseBuiltIn); err != nil {
		return OutcomeUnknown, errors.Join(problem, err)
	}
	word, err := read(s.nic, datasheet.RegProcessorStatus)
	if err == nil && datasheet.ProcessorState(word&datasheet.ProcessorStateMask) != datasheet.ProcessorBuiltIn {
		err = fmt.Errorf("%w: PROC_STATUS is %#x after the built-in behaviour was asked for", ErrRegisters, word)
	}
	if err != nil {
		return OutcomeUnknown, errors.Join(problem, err)
	}
	return OutcomeBuiltIn, problem
}
