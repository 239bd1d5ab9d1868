package published

import (
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// reason tells why rows with certain words are not modelled.
type reason struct {
	paper paper // other: any
	words []string
	why   string
}

// reasons are looked through in order; the first that fits counts.
var reasons = []reason{
	{mini, nil, "MINI is another design: it moves 48-byte cells on the memory bus, without DMA transfers to schedule"},
	{edt, nil, "EDT's figures are of its own simulated system: caches and a coherent memory bus, without stages of DMA"},
	{patent, []string{"axis"}, "the end of a drawing's axis, not a measurement"},
	{patent, []string{"cell"}, "a definition: the cell size of policy static with pulse 48"},
	{patent, []string{"frame size"}, "a definition: the frame size of the snapshot"},
	{patent, []string{"stages"}, "a definition: netRcv and netTx run in lock step"},
	{other, []string{"pio", "programmed i/o"}, "programmed I/O is not modelled"},
	{other, []string{"competing", "vmmc-2", "vmmc", "myriapi", "gms", "atm", "ethernet", "fast messages", "active messages"}, "a figure of another system"},
	{other, []string{"tcp", "netperf", "udp", "ip", "nfs", "rpc"}, "protocols above the messages, and their checksums, are not modelled"},
	{other, []string{"disk"}, "a disk, not a network"},
	{other, []string{"fault", "fetch"}, "includes the page fault and the server's time"},
	{other, []string{"cpu contention", "contention", "block copy"}, "contention with the CPU is not modelled"},
	{cs1997, []string{"t", "logging on", "log on", "with logging"}, "measured with the DMA log on; what it cost is not published"},
	{cs1997, []string{"inter-packet gap"}, "measured with the DMA log on; what it cost is not published"},
	{cutThrough, []string{"sram"}, "the size of the NIC's memory: the model has buffers, which do not limit it"},
	{cutThrough, []string{"max payload"}, "a limit of the firmware, not a measurement"},
}

func excluded(w *words) (Computation, bool) {
	for _, r := range reasons {
		if (r.paper == other || r.paper == w.paper) && (r.words == nil || has(w.text, r.words...)) {
			return Computation{Kind: NotModelled, What: r.why}, true
		}
	}
	return Computation{}, false
}

// missing says what a row would have to name to be computed.
func (w *words) missing() string {
	_, timed := isTime(w.Unit)
	_, rated := isRate(w.Unit)
	switch {
	case w.platform == "":
		return "names no platform that has a profile: " + strings.Join(profile.Names(), ", ")
	case !timed && !rated && w.Unit != "%":
		return fmt.Sprintf("the unit %q is not that of a time, a bandwidth or a reduction of latency", w.Unit)
	case w.policy == "":
		return "names no delivery policy"
	case w.payload == unusable:
		return fmt.Sprintf("the payload is none of 1 to %d bytes", maxDescribed)
	case min(w.send, w.recv) == unusable:
		return "the threshold is no number of bytes from 1 to the payload"
	case w.payload > 0 && max(w.send, w.recv) > w.payload, max(w.send, w.recv) > maxDescribed:
		return "the threshold is above the payload"
	case w.payload > maxDescribed:
		return fmt.Sprintf("the payload is above %d bytes", maxDescribed)
	}
	return "not a latency, a bandwidth, a reduction of latency or the time of a transfer"
}
