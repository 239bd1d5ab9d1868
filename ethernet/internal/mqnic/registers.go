package mqnic

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/function"
)

// kind is a type of register block. Size is the number of bytes of it that the driver uses. The values are
// those of corundum/corundum at commit 1ca0151b: modules/mqnic/mqnic_hw.h, and the blocks of
// fpga/common/rtl that answer them. A block whose version differs has other fields.
type kind struct {
	id, version uint32
	name        string
	size        uint64
}

var (
	kindFirmware  = kind{0xffffffff, 0x100, "FW_ID", 0x2c}
	kindIRQ       = kind{0xc007, 0x100, "IRQ_CONFIG", 0x10}
	kindIF        = kind{0xc000, 0x100, "IF", 0x1c}
	kindApp       = kind{0xc005, 0x200, "APP_INFO", 0x10}
	kindIFCtrl    = kind{0xc001, 0x400, "IF_CTRL", 0x38}
	kindEQ        = kind{0xc010, 0x400, "EQ_MANAGER", 0x18}
	kindCQ        = kind{0xc020, 0x400, "CQ_MANAGER", 0x18}
	kindTX        = kind{0xc030, 0x400, "TX_QUEUE_MANAGER", 0x18}
	kindRX        = kind{0xc031, 0x400, "RX_QUEUE_MANAGER", 0x18}
	kindQueueMap  = kind{0xc090, 0x200, "RX_QUEUE_MAP", 0x1c}
	kindPort      = kind{0xc002, 0x200, "PORT", 0x10}
	kindPortCtrl  = kind{0xc003, 0x300, "PORT_CTRL", 0x40}
	kindSchedule  = kind{0xc004, 0x300, "SCHED_BLOCK", 0x10}
	kindScheduler = kind{0xc040, 0x100, "SCHED_RR", 0x20}
)

// Fields of blocks, as offsets from the start of the block (mqnic_hw.h, MQNIC_RB_*).
const (
	blockVersion = 0x04
	blockNext    = 0x08
	blockHeader  = 0x0c

	irqInterval = 0x0c // shortest time between two interrupts, in microseconds

	ifFeatures = 0x0c
	ifMaxTX    = 0x20
	ifMaxRX    = 0x24
	ifTX       = 0x28
	ifRX       = 0x2c

	mapSizes = 0x0c // ports 7:0, log2 of the table 15:8
	mapPorts = 0x10 // three registers of each port, 16 bytes apart
	mapRSS   = 0x04
	mapApp   = 0x08

	portTX  = 0x10
	portRX  = 0x14
	portLFC = 0x1c

	schedControl = 0x18
)

// Bits of blocks.
const (
	featureSendSum = 1 << 8
	featureSum     = 1 << 9
	featureHash    = 1 << 10

	portEnable = 1 << 0
	portStatus = 1 << 16 // the link is ready

	watermark = 1<<24 - 1

	channelOn = 3 // enabled by the queue and globally
)

// Registers of a queue, as offsets from its start, and their bits (mqnic_hw.h, MQNIC_QUEUE_*,
// MQNIC_CQ_* and MQNIC_EQ_*).
const (
	queueBase    = 0x00
	queueCommand = 0x08
	queueActive  = 1 << 3  // of transmit and receive queues
	eventsActive = 1 << 19 // of event and completion queues

	cmdSize        = 0x80020000 // log2 of the size, and of the block from bit 8 on
	cmdTarget      = 0xc0000000 // the vector, event queue or completion queue
	cmdProducer    = 0x80800000
	cmdConsumer    = 0x80900000
	cmdConsumerArm = 0x80910000
	cmdOff         = 0x40000100
	cmdOn          = 0x40000101
)

const allOnes = 0xffffffff

// registers are BAR0.
type registers struct {
	f *function.Function
	function.Registers
}

// alive notes an error if the NIC does not answer. Its first block has a version of 0x100 then, and
// never all ones. A function that is there all the same has lost its logic or its clock.
func (r *registers) alive() {
	if r.Read(blockVersion) != allOnes || r.Err() != nil {
		return
	}
	if err := r.f.Present(); err != nil {
		r.Fail(err)
		return
	}
	r.Fail(fmt.Errorf("%w: its registers read as all ones", ethernet.ErrNeedsReset))
}
