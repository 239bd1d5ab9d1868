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

// Initialising says how the blocks of an eager region get a state in the NIC when it is registered.
type Initialising string

// Ways to initialise.
const (
	Flush    Initialising = "flush"     // the host flushes its caches: the NIC has no block
	NICReads Initialising = "nic-reads" // the NIC reads the region: both have all blocks
)

// Options say what is computed, by the flags of a command that does. What is empty is as its default says.
type Options struct {
	System    *profile.MemorySystem
	Mechanism Mechanism `flag:"mechanism" default:"edt" help:"how the message gets to the NIC"`
	Bytes     int       `flag:"bytes" default:"1024" help:"bytes of the message"`
	DMARate   float64   `flag:"dma-rate" help:"rate of the NIC's DMA engine in MB/s (default: the platform's)"`
	Order     Order     `flag:"order" default:"sequential" oneof:"sequential,stride,random" help:"order in which the program writes the words: sequential, stride (of one block) or random"`
	Seed      uint64    `flag:"seed" default:"1" help:"seed of the random order"`
	Words     []int     // the words that are written, one by one; nil = each once, in Order
	Until     Until     `flag:"until" default:"delivered" oneof:"wire,delivered,consumed" help:"end of the time: wire (the first byte leaves), delivered, or consumed (the program has read all)"`
	Receiving Receiving `flag:"receiving" default:"write-back" help:"how edt receives: write-back (with valid bits), or coherent"`
	// Initialising is of a region of Bytes whose blocks the host's caches have modified.
	Initialising Initialising `flag:"initialising" default:"flush" oneof:"flush,nic-reads" help:"how a registration initialises the NIC's copy with edt: flush, or nic-reads"`
}

// Result holds what a transfer takes, in the paper's three parts, and what went over the bus.
type Result struct {
	User          Time `json:"user_us" help:"programs: making message, descriptor and doorbell; seeing the completion"`
	Transfer      Time `json:"transfer_us" help:"moving descriptor and data between host and NIC"`
	Transport     Time `json:"transport_us" help:"the NICs' message layers; no network time"`
	SendUser      Time `json:"user_sending_us" help:"part of user_us"`
	SendTransport Time `json:"transport_sending_us" help:"part of transport_us"`
	Initiation    Time `json:"initiation_us" help:"part of transfer_us: starts of DMA transfers"`
	Interrupt     Time `json:"interrupt_us" help:"part of transfer_us: taking note of their ends"`

	Registration Time `json:"registration_us" help:"initialising the sender's region with edt, once; in no part"`
	Initialised  int  `json:"registration_transactions" help:"of registration_us"`

	Transactions []Transaction `json:"transactions" text:"-"`
}

// Execution is the time of moving the bytes: Transfer without initiation and interrupts.
func (r *Result) Execution() Time { return r.Transfer - r.Initiation - r.Interrupt }

// Total is the sum of the parts.
func (r *Result) Total() Time { return r.User + r.Transfer + r.Transport }

// Sentinel errors: the protocol of a mechanism is broken, which no option may bring about.
var (
	ErrOwners = errors.New("a block has two owners, or an owner and a reader")
	ErrStale  = errors.New("a copy of a block is older than the program's")
)

// Run computes one transfer on systems whose caches hold the buffers from the last one, as
// in a ping-pong. An option that cannot be used is an *option.Error.
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
