package via_test

import "golang.org/x/sys/unix"

// syscallOf returns the number and the first argument of a system call that is
// being entered.
func syscallOf(r *unix.PtraceRegs) (number, argument uint64) { return r.Regs[8], r.Regs[0] }
