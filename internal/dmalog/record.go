// Package dmalog is the log of DMA transfers from which packet flow graphs are
// drawn: one record for each transfer of each engine, as a live device keeps them
// in a ring and as the virtual-time model produces them.
//
// [Read] reads a log. A live log comes from NIC.EnableDMALog of package
// via; 'trapeze-lab plot flow' draws one.
//
// A file holds one JSON object on each line:
//
//	{"packet":0,"engine":"hostTx","start_us":7.5,"end_us":73.8,"bytes":8192}
//
// packet counts from 0. engine is hostTx, netTx, netRcv or hostRcv. Times are in
// microseconds from an origin that all records of the file share. bytes is the
// payload moved. A record of a bidirectional run may carry "flow":1 for the
// second direction; 0 is the default. Of hostTx and netRcv "queued" counts the frames that
// were known to wait behind this one when it began; 0 is the default. "buffer" is the NIC's, where
// the frame is. "control":true says that the bytes are the control message ahead of a payload. Records may
// come in any order.
//
// The first line may be a [Setup] instead, which says how the NICs were set up. The logs of
// the commands have one, and 'trapeze-lab model replay' needs it:
//
//	{"dma_log":1,"at":"nic","send":{"policy":"amp","minpulse_bytes":512},"receive":{"policy":"auto"},"burst_bytes":512,"buffers":4}
package dmalog

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Engine is one of the four transfers that a message crosses.
type Engine = datasheet.DMAEngine

// The engines in the order in which a message meets them.
const (
	HostTx  = datasheet.EngineHostTx  // host memory to NIC memory, sender's bus
	NetTx   = datasheet.EngineNetTx   // NIC memory to link
	NetRcv  = datasheet.EngineNetRcv  // link to NIC memory
	HostRcv = datasheet.EngineHostRcv // NIC memory to host memory, receiver's bus
	Engines = datasheet.DMAEngineCount
)

// ParseEngine returns the engine of that name.
func ParseEngine(name string) (Engine, bool) {
	for e := range Engines {
		if e.String() == name {
			return e, true
		}
	}
	return 0, false
}

// Record is one transfer. Start and End are picoseconds from the log's origin.
type Record struct {
	Packet int
	Flow   int // 0, or 1 for the second direction of a bidirectional run
	Engine Engine
	Start  int64
	End    int64
	Bytes  int
	Queued int // frames known to wait behind it when it began; of HostTx and NetRcv
	Buffer int // of the NIC, where the frame is
	// Control says that Bytes are those of the control message ahead of a payload. It goes no further than the NIC.
	Control bool
}

// Log is a file of records.
type Log struct {
	Setup   *Setup // nil: it does not say how the NICs were set up
	Records []Record
}

// Microseconds converts a time of this package for people and files.
func Microseconds(ps int64) float64 { return float64(ps) / 1e6 }

var (
	// ErrRecord: a line of a log is not a record.
	ErrRecord = errors.New("not a DMA record")
	// ErrSetup: the first line of a log does not say how NICs were set up, although it should.
	ErrSetup = errors.New("not the setup of a DMA log")
)

// LineError names the line of a log that cannot be used.
type LineError struct {
	File string
	Line int // from 1
	Key  string
	Hint string // what would be allowed
	Err  error
}

func (e *LineError) Error() string {
	where := fmt.Sprintf("%s:%d", e.File, e.Line)
	if e.Key != "" {
		where += ": " + e.Key
	}
	return fmt.Sprintf("%s: %v (%s)", where, e.Err, e.Hint)
}

func (e *LineError) Unwrap() error { return e.Err }
