package telemetry

import "fmt"

// Report says what a NIC is, how it does, and what it has counted: info --json prints it.
type Report struct {
	Address  string            `json:"address"`
	Backend  string            `json:"backend"`
	PCI      string            `json:"pci"`
	Version  string            `json:"version"`
	MAC      string            `json:"mac"`
	MTU      int               `json:"mtu"`
	SRAM     uint32            `json:"sram_bytes"`
	SRAMFree *uint32           `json:"sram_free_bytes" help:"null if the device gives out none of its memory"`
	SRAMUsed *uint32           `json:"sram_used_bytes" help:"null as well"`
	Vectors  int               `json:"vectors"`
	Features []string          `json:"features"`
	Limits   Limits            `json:"limits"`
	BARs     []BAR             `json:"bars"`
	Blocks   []Block           `json:"blocks"`
	Health   Health            `json:"health"`
	ClockUS  float64           `json:"clock_us"`
	DMA      *DMA              `json:"dma" help:"null on an older device"`
	Channels *Channels         `json:"channels" help:"null on an older device"`
	Program  *Program          `json:"program" help:"of the NIC processor, null without one"`
	Counters map[string]uint64 `json:"counters"`
}

type Limits struct {
	Endpoints  uint32 `json:"endpoints"`
	CQs        uint32 `json:"cqs"`
	Regions    uint32 `json:"regions"`
	Ptags      uint32 `json:"ptags"`
	QueueDepth int    `json:"queue_depth"`
	CQEntries  int    `json:"cq_entries"`
	Segments   int    `json:"segments"`
	Transfer   uint32 `json:"transfer_bytes"`
}

type BAR struct {
	Index    int    `json:"bar"`
	Bytes    uint64 `json:"bytes"`
	Mappable bool   `json:"mappable"`
}

type Block struct {
	Type    uint32 `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Offset  uint64 `json:"offset"`
	Bytes   uint32 `json:"bytes"`
}

// Health is the state of a device.
type Health struct {
	Ready     bool `json:"ready"`
	Resetting bool `json:"-"`
	Fatal     bool `json:"fatal"`
	LinkUp    bool `json:"link_up"`
	// Fault is one of the Fault codes of package descriptors, FaultDetail what
	// belongs to it.
	Fault       uint32 `json:"fault"`
	FaultDetail uint32 `json:"fault_detail"`
	// Resets since power-on.
	Resets uint32 `json:"resets"`
	// Heartbeat changes whenever the device has made progress.
	Heartbeat uint32 `json:"heartbeat"`
	// EventsLost counts events for which the admin queue had no room, and those
	// that came faster than the handler of OnEvent took them.
	EventsLost uint64 `json:"events_lost"`
}

// DMA says how frames cross the NIC.
type DMA struct {
	Policy   Policy  `json:"policy"`
	Deadline float64 `json:"pulse_deadline_us"`
	Timeouts uint32  `json:"pulse_timeouts"`
	Refused  uint32  `json:"pulses_refused"`
	Log      DMALog  `json:"log"`
}

// DMALog is the state of the DMA log.
type DMALog struct {
	Enabled bool `json:"enabled"`
	// Records is the number of records that the log has room for; zero if it is off.
	Records int `json:"records"`
	// Lost counts records for which there was no room; it wraps.
	Lost uint32 `json:"lost"`
}

// Channels says how full the FIFOs of a NIC's channels are, and were at most since it was
// reset. It has the counts of cells too.
type Channels struct {
	Open         int    `json:"open"`
	High         FIFO   `json:"high" help:"messages to send"`
	Low          FIFO   `json:"low" help:"messages to send"`
	Receive      FIFO   `json:"receive" help:"cells to store"`
	ReceiveRoom  int    `json:"receive_cells" help:"room for"`
	Stopped      int    `json:"stopped" help:"stations that the NIC has told to stop"`
	StoppedBy    int    `json:"stopped_by" help:"stations that have told it so"`
	Stops        uint64 `json:"stops" help:"times"`
	StopsTaken   uint64 `json:"stops_taken" help:"times"`
	CellsSent    uint64 `json:"cells_sent"`
	CellsArrived uint64 `json:"cells_received"`
	Drops        uint64 `json:"drops"`
}

// FIFO is a FIFO.
type FIFO struct {
	Level   int `json:"level"`
	Highest int `json:"highest"`
}

// Program has what a NIC says about its control program, in JSON.
type Program struct {
	State     string        `json:"state" help:"built-in, halted, starting, running, faulted"`
	Fault     string        `json:"fault,omitempty" help:"why it is faulted"`
	Name      string        `json:"name"`
	Version   string        `json:"version"`
	BuildID   string        `json:"build_id"`
	Digest    string        `json:"digest" help:"of the image that runs"`
	Slot      *uint32       `json:"slot" help:"null for none"`
	Previous  *uint32       `json:"previous_slot" help:"null for none"`
	Slots     uint32        `json:"slots"`
	SlotBytes uint32        `json:"slot_bytes"`
	ABI       string        `json:"abi"`
	Hooks     []ProgramHook `json:"hooks"`
}

// String says in a line what runs.
func (p *Program) String() string {
	if p == nil {
		return "none: the device has no NIC processor"
	}
	s := p.State
	if p.Name != "" || p.Slot != nil {
		slot := "none"
		if p.Slot != nil {
			slot = fmt.Sprint(*p.Slot)
		}
		s = fmt.Sprintf("%s, %s %s in slot %s", p.State, p.Name, p.Version, slot)
	}
	if p.Fault != "" {
		s += " (" + p.Fault + ")"
	}
	return s
}

// ProgramHook has what a NIC says about one hook.
type ProgramHook struct {
	Hook      string `json:"hook"`
	Installed bool   `json:"installed"`
	Runs      uint64 `json:"runs"`
	Faults    uint64 `json:"faults"`
	WorstCase uint32 `json:"worst_case_instructions"`
}

// Policy is a delivery policy in JSON.
type Policy struct {
	At      string    `json:"at"`
	Send    Direction `json:"send"`
	Receive Direction `json:"receive"`
	// Fallback says why the NIC decides, though the host should have.
	Fallback string `json:"fallback,omitempty"`
}

// Direction is the policy of one direction. MinPulse is left out where the
// policy has none.
type Direction struct {
	Policy   string `json:"policy"`
	MinPulse int    `json:"minpulse_bytes,omitempty"`
}
