package transport

import (
	"encoding/binary"
	"math"
)

// ConfigSize is the used part of a network device's configuration, in bytes.
const ConfigSize = 17

// Where fields of the configuration are ("Device configuration layout").
const (
	configMAC    = 0
	configStatus = 6
	configPairs  = 8
	configMTU    = 10
	configSpeed  = 12
	configDuplex = 16
)

const linkUp = 1 // in the status (VIRTIO_NET_S_LINK_UP)

// ParseConfig reads ConfigSize bytes of configuration. Pairs counts if the device has several,
// and is pairs else.
func ParseConfig(b []byte, pairs int) Config {
	le := binary.LittleEndian
	c := Config{
		MAC:        [6]byte(b[configMAC:]),
		LinkUp:     le.Uint16(b[configStatus:])&linkUp != 0,
		Pairs:      pairs,
		MTU:        int(le.Uint16(b[configMTU:])),
		FullDuplex: b[configDuplex] == 1,
	}
	if n := le.Uint16(b[configPairs:]); n > 0 {
		c.Pairs = int(n)
	}
	// What is above is not known, by the specification.
	if v := le.Uint32(b[configSpeed:]); v <= math.MaxInt32 {
		c.Speed = int(v)
	}
	return c
}
