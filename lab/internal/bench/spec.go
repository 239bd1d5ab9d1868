// Package bench measures messages between two endpoints: in one process, or in
// two that are pinned to a core each. The command that uses it starts itself again
// as worker processes, which take a Spec and give a Side.
package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// Test names a measurement.
type Test string

// Tests.
const (
	// Latency: halves of round trips, one message at a time.
	Latency Test = "latency"
	// Bandwidth: a stream in one direction, with a window of messages under way.
	Bandwidth Test = "bandwidth"
	// Put: halves of round trips of RDMA writes, which each end finds by polling the
	// last byte of its memory.
	Put Test = "put"
	// Get: RDMA reads, one at a time, from the post to the completion.
	Get Test = "get"
)

// Role of a worker.
type Role string

// Roles.
const (
	// Source starts round trips, or sends the stream.
	Source Role = "source"
	// Echo sends back what comes, or takes the stream.
	Echo Role = "echo"
	// Both is source and echo in one process and one goroutine.
	Both Role = "both"
)

// Tests returns all tests.
func Tests() []string { return []string{string(Latency), string(Bandwidth), string(Put), string(Get)} }

// oneSided reports whether it is RDMA that is measured.
func (t Test) oneSided() bool { return t == Put || t == Get }

// ErrSpec is wrapped by the errors about values that cannot be measured.
var ErrSpec = errors.New("bad benchmark")

// Spec is one worker's part of one measurement. It crosses to workers as JSON.
type Spec struct {
	Test Test `json:"test"`
	Role Role `json:"role"`
	// Address of the NIC, Peer the other one's in role Both.
	Address string `json:"address"`
	Peer    string `json:"peer,omitempty"`
	Bytes   int    `json:"bytes"` // of a message
	VIs     int    `json:"vis"`   // that take turns
	Window  int    `json:"window"`
	// Reliability level as via spells it.
	Reliability string `json:"reliability"`
	Nanoseconds int64  `json:"ns"` // to measure for, after a tenth of warm-up
	// Core to pin the process to, -1 for any.
	Core int `json:"core"`
	// Garbage is the number of bytes a second that another goroutine of the worker allocates and
	// drops.
	Garbage int64 `json:"garbage,omitempty"`
	// ProfileFolder is where the worker writes a profile of its CPU time, "" for none.
	ProfileFolder string `json:"profile,omitempty"`
	// Eager says that the NIC has messages and descriptors before they are posted.
	Eager bool `json:"eager,omitempty"`
}

// Limits of a Spec.
const (
	maxVIs    = 4096
	maxWindow = 4096
	minTime   = time.Millisecond
	maxTime   = time.Hour
	// maxMemory bounds the buffers of a worker in bytes.
	maxMemory = 4 << 30
)

// UsualWindow is the number of messages of a size that are under way on a VI if nothing else is
// said. Each has a buffer of its own at both ends; more of them than a second-level cache holds
// would measure the memory instead. A round trip needs one, and another that is given back
// meanwhile; a read is over before the next one.
func UsualWindow(t Test, bytes int) int {
	const inCache = 512 << 10
	switch t {
	case Latency, Put:
		return 4
	case Get:
		return 1
	}
	return min(max(inCache/max(bytes, 1), 8), 512)
}

// Levels are the reliability levels by name.
var levels = map[string]via.Reliability{
	"unreliable": via.Unreliable, "reliable-delivery": via.ReliableDelivery, "reliable-reception": via.ReliableReception,
}

// Levels returns the names of the reliability levels.
func Levels() []string { return []string{"unreliable", "reliable-delivery", "reliable-reception"} }

// Validate checks a Spec. Errors wrap ErrSpec and name the value and its range.
func (s *Spec) Validate() error {
	bad := func(what string, is any, allowed string) error {
		return fmt.Errorf("%w: %s %v (%s)", ErrSpec, what, is, allowed)
	}
	switch {
	case !slices.Contains(Tests(), string(s.Test)):
		return bad("test", s.Test, strings.Join(Tests(), ", "))
	case !slices.Contains([]Role{Source, Echo, Both}, s.Role):
		return bad("role", s.Role, "source, echo or both")
	case s.Bytes < 0 || s.Bytes > datasheet.MaxTransfer:
		return bad("message size", s.Bytes, fmt.Sprintf("0 to %d bytes", datasheet.MaxTransfer))
	case s.Test.oneSided() && s.Bytes == 0:
		return bad("message size", s.Bytes, "1 byte or more, whose last one is looked at")
	case s.Test == Get && s.Reliability == "unreliable":
		return bad("reliability", s.Reliability, "VIA has no RDMA read there")
	case s.VIs < 1 || s.VIs > maxVIs:
		return bad("number of VIs", s.VIs, fmt.Sprintf("1 to %d", maxVIs))
	case s.Window < 1 || s.Window > maxWindow:
		return bad("window", s.Window, fmt.Sprintf("1 to %d messages", maxWindow))
	case int64(s.Bytes)*int64(s.VIs)*int64(s.Window) > maxMemory:
		return bad("window", s.Window, fmt.Sprintf("with %d VIs and %d bytes it takes more than %d MiB of buffers", s.VIs, s.Bytes, maxMemory>>20))
	case levels[s.Reliability] == 0:
		return bad("reliability", s.Reliability, "unreliable, reliable-delivery or reliable-reception")
	case time.Duration(s.Nanoseconds) < minTime || time.Duration(s.Nanoseconds) > maxTime:
		return bad("duration", time.Duration(s.Nanoseconds), fmt.Sprintf("%v to %v", minTime, maxTime))
	case s.Core < -1:
		return bad("core", s.Core, "-1 for any, or a number of this machine")
	case s.Garbage < 0:
		return bad("garbage", s.Garbage, "0 or more bytes a second")
	}
	return nil
}
