package datasheet

// Doorbells are 32-bit registers in BAR2, one 4 KiB page for each endpoint and
// one for each completion queue, so that a process can be given its own pages
// and no other (SPEC.md 3). The send and the receive side stand on 64-byte
// lines of their own.
//
// The page of endpoint e starts at e*PageSize; the page of completion queue c
// at (max endpoints + c)*PageSize. Endpoint 0 and its page belong to the
// owner of the device: it has the marks, and the number is that of channel 0.
const (
	// DoorbellSend carries the free-running producer index of the send queue:
	// the number of tokens posted since the endpoint was created, modulo 2^32.
	// One store posts a batch.
	DoorbellSend = 0x000
	// DoorbellSendArm asks for one interrupt when the send queue completes more
	// than the consumer has taken; it carries an ArmWord. The device raises the
	// endpoint's send vector once, as soon as it has completed more than that,
	// at once if it already has.
	DoorbellSendArm = 0x008
	// DoorbellRecv and DoorbellRecvArm are the same for the receive queue.
	DoorbellRecv    = 0x040
	DoorbellRecvArm = 0x048
	// DoorbellRing is the distance of a ring's doorbells from those of a VI: its send
	// doorbell is at DoorbellRing+DoorbellSend, and so on. It has none before them.
	DoorbellRing = 0x100
	// DoorbellHigh and DoorbellLow are the first of ChannelDepth words each, to which the
	// host stores in turn what a channel is to send at high or at low priority: a
	// ChannelBell each. The device takes a word with the value zero.
	DoorbellHigh = 0x200
	DoorbellLow  = 0x240
	// DoorbellReceive says where what a channel receives may go.
	DoorbellReceive = 0x280
	// DoorbellCQArm, in the page of a completion queue, asks for one interrupt
	// when there are more entries than the consumer has taken; it carries an
	// ArmWord.
	DoorbellCQArm = 0x000
)

// ArmFlag is set in every arm word, so that a device that finds doorbells by
// looking at memory can tell a new one from none.
const ArmFlag uint32 = 0x80000000

// ArmWord is the word for an arm doorbell of a consumer that has taken
// taken completions (free-running): the low 31 bits of the count and ArmFlag.
func ArmWord(taken uint32) uint32 { return taken | ArmFlag }

// ArmReached reports whether a queue that has completed completed (free-running)
// owes an interrupt to a consumer that stored word.
func ArmReached(word, completed uint32) bool {
	return int32((completed-word)<<1) > 0
}

// EndpointPage returns the offset in BAR2 of the doorbell page of endpoint e.
func EndpointPage(e uint32) uint64 { return uint64(e) * PageSize }

// CQPage returns the offset in BAR2 of the doorbell page of completion queue c
// on a device with maxEndpoints endpoints.
func CQPage(maxEndpoints, c uint32) uint64 {
	return (uint64(maxEndpoints) + uint64(c)) * PageSize
}
