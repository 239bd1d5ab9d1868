package protocol

import "fmt"

// Command says what a message asks for.
type Command uint16

// The commands, with who sends them.
const (
	CommandVersion           Command = 1  // client: the first message
	CommandDMAMap            Command = 2  // client
	CommandDMAUnmap          Command = 3  // client
	CommandDeviceInfo        Command = 4  // client
	CommandRegionInfo        Command = 5  // client
	CommandRegionIOFDs       Command = 6  // client
	CommandIRQInfo           Command = 7  // client
	CommandSetIRQs           Command = 8  // client
	CommandRegionRead        Command = 9  // client
	CommandRegionWrite       Command = 10 // client
	CommandDMARead           Command = 11 // server
	CommandDMAWrite          Command = 12 // server
	CommandDeviceReset       Command = 13 // client
	CommandDirtyPages        Command = 14 // client; no longer in the specification
	CommandRegionWriteMulti  Command = 15 // client
	CommandDeviceFeature     Command = 16 // client
	CommandMigrationDataRead Command = 17 // client
	CommandMigrationDataSend Command = 18 // client

	// Commands is one more than the largest command.
	Commands = 19
)

var commandNames = [Commands]string{
	CommandVersion: "VERSION", CommandDMAMap: "DMA_MAP", CommandDMAUnmap: "DMA_UNMAP",
	CommandDeviceInfo: "DEVICE_GET_INFO", CommandRegionInfo: "DEVICE_GET_REGION_INFO",
	CommandRegionIOFDs: "DEVICE_GET_REGION_IO_FDS", CommandIRQInfo: "DEVICE_GET_IRQ_INFO",
	CommandSetIRQs: "DEVICE_SET_IRQS", CommandRegionRead: "REGION_READ", CommandRegionWrite: "REGION_WRITE",
	CommandDMARead: "DMA_READ", CommandDMAWrite: "DMA_WRITE", CommandDeviceReset: "DEVICE_RESET",
	CommandDirtyPages: "DIRTY_PAGES", CommandRegionWriteMulti: "REGION_WRITE_MULTI",
	CommandDeviceFeature: "DEVICE_FEATURE", CommandMigrationDataRead: "MIG_DATA_READ",
	CommandMigrationDataSend: "MIG_DATA_WRITE",
}

// Known reports whether the protocol has, or had, the command.
func (c Command) Known() bool { return c >= 1 && c < Commands }

// String returns the command's name in the specification.
func (c Command) String() string {
	if c.Known() {
		return commandNames[c]
	}
	return fmt.Sprintf("command %d", uint16(c))
}
