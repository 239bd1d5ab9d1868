// Package coherence moves one message from a program's memory through the NIC into
// another program's memory, in virtual time, by the mechanisms that the EDT paper compares:
// how many transactions a memory bus carries for it, and what each of them takes.
//
// A processor with two levels of cache, memory and the NIC share a bus on which all see
// all transactions, one at a time: arbitration, address, data, in whole cycles. Blocks are
// Modified, Exclusive, Shared or Invalid in the host's caches, and Modified, Shared or
// Invalid in the NIC. On PCIe, which has no such bus, the NIC reads and writes host memory
// with the costs of a profile, and the host pushes blocks.
//
// Platforms are profile.MemorySystem, clocks and spans of time profile.Time. The model is
// deterministic: the same options give the same transactions.
package coherence

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Time is a span of virtual time.
type Time = profile.Time

// MaxBytes is the longest message. All its transactions are kept.
const MaxBytes = 64 << 10

// Until is the end of what is computed.
type Until string

// Ends of a transfer.
const (
	Wire      Until = "wire"      // the first frame's first byte leaves the sending NIC
	Delivered Until = "delivered" // the receiving program has the completion, as the paper measures
	Consumed  Until = "consumed"  // it has also read the message, word by word
)

// Receiving says how an EDT message gets from the NIC to the receiving program.
type Receiving string

// Ways to receive.
const (
	WriteBack Receiving = "write-back" // the NIC marks blocks valid and writes them back one by one
	Coherent  Receiving = "coherent"   // the NIC owns the blocks; the host's reads fetch them from there
)

// Options say what is computed.
type Options struct {
	System    *profile.MemorySystem
	Mechanism Mechanism
	Bytes     int     // 1 to MaxBytes
	DMARate   float64 // MB/s, up to the platform's; 0 = the platform's
	Order     Order   // in which the program writes the words; empty = Sequential
	Seed      uint64  // of Random
	Words     []int   // the words that are written, one by one; nil = each once, in Order
	Until     Until   // empty = Delivered
	Receiving Receiving
}

// Result holds what a transfer takes, in the paper's three parts, and what went over the bus.
type Result struct {
	User          Time // programs: making message, descriptor and doorbell; seeing the completion
	Transfer      Time // moving descriptor and data between host and NIC
	Transport     Time // the NICs' message layers; no network time
	SendUser      Time // part of User: of the sender
	SendTransport Time // part of Transport: of the sending NIC
	Initiation    Time // part of Transfer: starts of DMA transfers
	Interrupt     Time // part of Transfer: taking note of their ends
	Transactions  []Transaction
}

// Execution is the time of moving the bytes: Transfer without initiation and interrupts.
func (r *Result) Execution() Time { return r.Transfer - r.Initiation - r.Interrupt }

// Total is the sum of the parts.
func (r *Result) Total() Time { return r.User + r.Transfer + r.Transport }

// Error is an option that cannot be used.
type Error struct {
	Field   string
	Value   string
	Allowed string
	Err     error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %q: %v (allowed: %s)", e.Field, e.Value, e.Err, e.Allowed)
}

func (e *Error) Unwrap() error { return e.Err }

// Sentinel errors. ErrOption is inside an *Error; the others say that the protocol of a
// mechanism is broken, which no option may bring about.
var (
	ErrOption = errors.New("bad value")
	ErrOwners = errors.New("a block has two owners, or an owner and a reader")
	ErrStale  = errors.New("a copy of a block is older than the program's")
)

// Run computes one transfer on systems whose caches hold the buffers from the last one, as
// in a ping-pong.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.System.PCIe != nil {
		return overPCIe(&o), nil
	}
	return onBus(ctx, &o)
}
