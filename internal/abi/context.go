package abi

// PulseContext is the context of pulse hooks: all fields are 32 bits and aligned, the
// program may load 1, 2 or 4 aligned bytes inside a field, and may not store. It
// says what pipeline.View says, for the oldest frame that has not left.
//
// The answer is the number of bytes to move now, 0 = wait. An answer above Arrived -
// Sent means all of them. A frame that has arrived whole may not wait: 0 means all
// then.
type PulseContext struct {
	Length  uint32 // bytes of the frame's payload, 1 or more
	Arrived uint32 // bytes that are in NIC memory
	Sent    uint32 // bytes that earlier transfers have moved
	Queued  uint32 // frames that wait behind this one
	Minimum uint32 // MINPULSE register of the direction, in bytes
	Frame   uint32 // number of the frame, counted per direction, wraps
}

// Offsets and size of PulseContext.
const (
	PulseLength  = 0
	PulseArrived = 4
	PulseSent    = 8
	PulseQueued  = 12
	PulseMinimum = 16
	PulseFrame   = 20
	PulseSize    = 24
)

// Offsets of the context of frame hooks: struct xdp_md of linux/bpf.h without its
// last field. All fields are 32 bits wide and read whole. A load of Data or DataEnd
// gives a pointer: to the first byte of the frame (its Ethernet header), and past
// its last. DataMeta is equal to Data. A program may load and, in filter hooks,
// store between them, after it has compared with DataEnd.
const (
	FrameData    = 0
	FrameDataEnd = 4
	FrameMeta    = 8
	// FrameInterface is 0 for the wire.
	FrameInterface = 12
	// FrameQueue is the receive queue that a frame is for by the built-in rule, or
	// the number of the endpoint that sends it.
	FrameQueue       = 16
	FrameContextSize = 20
)

// Answers of filter hooks, in the low 8 bits. The values are those of enum
// xdp_action (linux/bpf.h). Others count as FilterAborted.
const (
	// FilterAborted: the program gave up. The frame passes, the fault counts.
	FilterAborted = 0
	FilterDrop    = 1
	FilterPass    = 2
	// FilterRedirect, of filter/rx: the frame is for the receive queue in bits
	// 31:8.
	FilterRedirect = 4
)

// DemuxDefault is an answer of demux/rx, which has the receive queue in bits 31:0 and
// the entry of its payload table in bits 63:32. In either half it means the built-in rule: the queue
// that the frame is for, and the next posted receive.
const DemuxDefault uint32 = 0xffffffff
