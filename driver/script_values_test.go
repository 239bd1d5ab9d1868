package driver_test

import (
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// values are names that numbers have in scripts.
var values = map[string]uint64{
	"identity": datasheet.IdentityOffset, "health": datasheet.HealthOffset, "admin": datasheet.AdminOffset, "clock": datasheet.ClockOffset,
	"counters": datasheet.CounterOffset, "interrupt": datasheet.InterruptOffset, "dma": datasheet.DMAOffset,
	"Type": datasheet.BlockRegType, "Version": datasheet.BlockRegVersion, "Next": datasheet.BlockRegNext, "Size": datasheet.BlockRegSize,
	"Version1": uint64(datasheet.BlockVersion1), "HealthSize": datasheet.HealthSize, "BAR0": datasheet.BAR0Size, "Clock": uint64(datasheet.BlockClock),
	"Magic": uint64(datasheet.RegMagic), "MaxEndpoints": uint64(datasheet.RegMaxEndpoints), "MaxCQs": uint64(datasheet.RegMaxCQs), "MaxQueueLog2": uint64(datasheet.RegMaxQueueLog2),
	"MaxCQLog2": uint64(datasheet.RegMaxCQLog2), "MTU": uint64(datasheet.RegMTU), "PageSizeLog2": datasheet.RegPageSizeLog2,
	"Status": uint64(datasheet.RegStatus), "Control": uint64(datasheet.RegControl), "Fault": uint64(datasheet.RegFault), "FaultDetail": uint64(datasheet.RegFaultDetail), "ResetCount": uint64(datasheet.RegResetCount),
	"AdminControl": uint64(datasheet.RegAdminControl), "AdminStatus": uint64(datasheet.RegAdminStatus),
	"Ready": uint64(datasheet.DeviceReady), "Fatal": uint64(datasheet.DeviceFatal), "Resetting": uint64(datasheet.DeviceResetting),
	"FaultAdminDMA": uint64(datasheet.FaultAdminDMA), "FaultAdminIndex": uint64(datasheet.FaultAdminIndex), "AdminError": uint64(datasheet.AdminError),
	"Marks": uint64(datasheet.FeatureDoorbellMarks), "Eager": uint64(datasheet.FeatureEager),
	"page": datasheet.PageSize, "all": ^uint64(0), "SRAM": fakeSRAM, "wide": uint64(datasheet.EagerWideLog2),
	"block": uint64(datasheet.EagerLog2), "done": uint64(datasheet.StatusDone), "flushed": uint64(datasheet.StatusFlushed), "received": uint64(datasheet.StatusOpReceive),
	"protection": uint64(datasheet.StatusProtectionError), "length": uint64(datasheet.StatusLengthError), "immediate": uint64(datasheet.StatusImmediate), "Receive": uint64(datasheet.CompletionReceive),
	"ReadOnly": uint64(datasheet.AccessReadOnly), "RDMAWrite": uint64(datasheet.AccessRDMAWrite), "U": uint64(datasheet.Unreliable),
	"RD":   uint64(datasheet.ReliableDelivery),
	"Link": uint64(datasheet.EventLink), "CQOverrun": uint64(datasheet.EventCQOverrun), "ConnectionLost": uint64(datasheet.EventConnectionLost),
	"PostDescriptor": uint64(datasheet.EventPostDescriptor), "Catastrophic": uint64(datasheet.EventCatastrophic),
	"Idle": uint64(datasheet.StateIdle), "Error": uint64(datasheet.StateError), "slot": datasheet.RingSlotSize,
	"PolicyTx": uint64(datasheet.RegPolicyTx), "PolicyRx": uint64(datasheet.RegPolicyRx), "MinPulseTx": uint64(datasheet.RegMinPulseTx), "MinPulseRx": uint64(datasheet.RegMinPulseRx),
	"PulseDeadline": uint64(datasheet.RegPulseDeadline), "DMAControl": uint64(datasheet.RegDMAControl), "Progress": uint64(datasheet.RegProgressLow),
	"LogBase": uint64(datasheet.RegLogBaseLow), "LogLog2": datasheet.RegLogLog2, "MaxTransfer": datasheet.MaxTransfer, "reset": uint64(datasheet.ControlReset),
	"lost": uint64(datasheet.ResultConnectionLost), "broken": uint64(datasheet.ResultDescriptor), "LogConsumer": uint64(datasheet.RegLogConsumer),
	"NIC": uint64(driver.AtNIC), "host": uint64(driver.AtHost), "Fails": uint64(driver.NoRoomFails), "Waits": uint64(driver.NoRoomWaits),
	"Ordinary": uint64(driver.NoRoomOrdinary), "Written": uint64(driver.EagerWritten), "MaxDMALog": driver.MaxDMALog,
}
