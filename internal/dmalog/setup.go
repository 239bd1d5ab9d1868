package dmalog

import (
	"encoding/json"
	"strconv"
)

// Limits of a log's first line.
const (
	setupVersion = 1
	maxName      = 64
	maxSize      = 1 << 24 // bytes of a burst or of a minimum pulse
	maxRate      = 1e13    // bytes per second
)

// Places where a policy can run.
const (
	AtNIC     = "nic"
	AtHost    = "host"
	AtProgram = "program" // a control program in the NIC, after which the policy is named
)

// Side is the policy of one direction.
type Side struct {
	Policy   string `json:"policy"`                   // 1 to 64 bytes
	MinPulse int    `json:"minpulse_bytes,omitempty"` // 0 = the policy has none
}

// Setup says how the NICs of a log were set up: what a replay needs beside the transfers.
type Setup struct {
	Version int     `json:"dma_log"` // of this line: 1
	At      string  `json:"at"`      // AtNIC, AtHost or AtProgram
	Send    Side    `json:"send"`
	Receive Side    `json:"receive"`
	Burst   int     `json:"burst_bytes"`                // that hostTx moves before netTx is asked; 1 or more
	Buffers int     `json:"buffers"`                    // of each NIC in each direction, in frames; 1 or more
	Rate    float64 `json:"rate_bytes_per_s,omitempty"` // of the wire; 0 = as fast as it can
	Delay   float64 `json:"delay_us,omitempty"`         // of the wire, microseconds
}

// isSetup reports whether a line says how NICs were set up: it has the key dma_log.
func isSetup(text []byte) bool {
	var probe struct {
		Version json.RawMessage `json:"dma_log"`
	}
	return json.Unmarshal(text, &probe) == nil && probe.Version != nil
}

// parseSetup returns the setup of a line, or the key that is wrong and what it may be.
func parseSetup(text []byte) (s *Setup, key, hint string) {
	s = new(Setup)
	if hint := decode(text, s, "dma_log, at, send, receive, burst_bytes, buffers"); hint != "" {
		return nil, "", hint
	}
	named := func(side Side) bool { return side.Policy != "" && len(side.Policy) <= maxName }
	sized := func(side Side) bool { return side.MinPulse >= 0 && side.MinPulse <= maxSize }
	switch {
	case s.Version != setupVersion:
		return nil, "dma_log", strconv.Itoa(setupVersion) + ", the version that this program knows"
	case s.At != AtNIC && s.At != AtHost && s.At != AtProgram:
		return nil, "at", "nic, host or program"
	case !named(s.Send):
		return nil, "send.policy", "a name of 1 to " + strconv.Itoa(maxName) + " bytes"
	case !named(s.Receive):
		return nil, "receive.policy", "a name of 1 to " + strconv.Itoa(maxName) + " bytes"
	case !sized(s.Send):
		return nil, "send.minpulse_bytes", "0 to " + strconv.Itoa(maxSize)
	case !sized(s.Receive):
		return nil, "receive.minpulse_bytes", "0 to " + strconv.Itoa(maxSize)
	case s.Burst < 1 || s.Burst > maxSize:
		return nil, "burst_bytes", "1 to " + strconv.Itoa(maxSize)
	case s.Buffers < 1 || s.Buffers > maxBuffer+1:
		return nil, "buffers", "1 to " + strconv.Itoa(maxBuffer+1)
	case !(s.Rate >= 0 && s.Rate <= maxRate):
		return nil, "rate_bytes_per_s", "0 to 1e13"
	case !(s.Delay >= 0 && s.Delay <= maxMicros):
		return nil, "delay_us", "0 to 1e12 microseconds"
	}
	return s, "", ""
}
