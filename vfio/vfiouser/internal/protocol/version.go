package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
)

// Major and Minor are the version that this package speaks. Peers of another
// major version do not understand each other; the lower minor version counts. QEMU
// speaks 0.0, libvfio-user 0.1 since it began: nothing that we use is different.
const (
	Major = 0
	Minor = 1
)

// Capabilities of one end (specification, VFIO_USER_VERSION).
type Capabilities struct {
	// MaxMsgFDs is the number of file descriptors that it takes with one message.
	MaxMsgFDs uint32
	// MaxDataXferSize is the number of bytes of data that it takes with one message.
	MaxDataXferSize uint32
	// MaxDMAMaps is the number of DMA mappings that a server can hold.
	MaxDMAMaps uint32
	// PageSizes has a bit for each size of pages that can be mapped.
	PageSizes uint64
}

// DefaultCapabilities are those of a peer that says nothing about them.
func DefaultCapabilities() Capabilities {
	return Capabilities{MaxMsgFDs: 1, MaxDataXferSize: 1 << 20, MaxDMAMaps: 65535, PageSizes: 4096}
}

// Version is both the request and the reply of VERSION.
type Version struct {
	Major, Minor uint16
	Capabilities Capabilities
}

// versionData is the text that follows the version numbers. Capabilities that
// we do not know are left out.
type versionData struct {
	Capabilities capabilityData `json:"capabilities"`
}

type capabilityData struct {
	MaxMsgFDs       *uint32 `json:"max_msg_fds,omitempty"`
	MaxDataXferSize *uint32 `json:"max_data_xfer_size,omitempty"`
	MaxDMAMaps      *uint32 `json:"max_dma_maps,omitempty"`
	PageSizes       *uint64 `json:"pgsizes,omitempty"`
}

// versionSize is the size of the numbers, maxVersionSize that of a payload that
// is not sent by mistake.
const (
	versionSize    = 4
	maxVersionSize = 64 << 10
)

// Append appends the payload to b. It takes no more than 194 bytes for its
// text: QEMU has room for no longer reply.
func (v Version) Append(b []byte) ([]byte, error) {
	c := v.Capabilities
	text, err := json.Marshal(versionData{capabilityData{&c.MaxMsgFDs, &c.MaxDataXferSize, &c.MaxDMAMaps, &c.PageSizes}})
	if err != nil {
		return b, fmt.Errorf("encode capabilities: %w", err)
	}
	return append(append(encode(b, []uint16{v.Major, v.Minor}), text...), 0), nil
}

// DecodeVersion reads a payload of VERSION. Capabilities that it does not name
// are DefaultCapabilities.
func DecodeVersion(p []byte) (Version, error) {
	const c = CommandVersion
	v := Version{Capabilities: DefaultCapabilities()}
	if len(p) < versionSize || len(p) > maxVersionSize {
		return v, Invalid(c, "size", HeaderSize+len(p), "want %#x to %#x", HeaderSize+versionSize, HeaderSize+maxVersionSize)
	}
	v.Major, v.Minor = order.Uint16(p), order.Uint16(p[2:])
	if v.Major != Major {
		return v, Invalid(c, "major", v.Major, "want %d", Major)
	}
	text := p[versionSize:]
	if len(text) == 0 {
		return v, nil
	}
	if end := bytes.IndexByte(text, 0); end != len(text)-1 {
		return v, Invalid(c, "version data", len(text), "the text does not end with the message, in a NUL")
	}
	if err := v.Capabilities.decode(text[:len(text)-1]); err != nil {
		return v, err
	}
	return v, nil
}

func (c *Capabilities) decode(text []byte) error {
	var d versionData
	if err := json.Unmarshal(text, &d); err != nil {
		field := "version data"
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			field = wrong.Field
		}
		return &Error{Message: CommandVersion.String(), Field: field, Value: uint64(len(text)), Why: err.Error(), Errno: syscall.EINVAL}
	}
	take(&c.MaxMsgFDs, d.Capabilities.MaxMsgFDs)
	take(&c.MaxDataXferSize, d.Capabilities.MaxDataXferSize)
	take(&c.MaxDMAMaps, d.Capabilities.MaxDMAMaps)
	take(&c.PageSizes, d.Capabilities.PageSizes)
	switch {
	case c.MaxDataXferSize < 8:
		return Invalid(CommandVersion, "max_data_xfer_size", c.MaxDataXferSize, "want at least 8, the largest register")
	case c.PageSizes == 0 || c.PageSizes%4096 != 0:
		return Invalid(CommandVersion, "pgsizes", c.PageSizes, "want a multiple of 4096")
	}
	return nil
}

func take[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}
