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
	MaxMsgFDs uint32 `json:"max_msg_fds"`
	// MaxDataXferSize is the number of bytes of data that it takes with one message.
	MaxDataXferSize uint32 `json:"max_data_xfer_size"`
	// MaxDMAMaps is the number of DMA mappings that a server can hold.
	MaxDMAMaps uint32 `json:"max_dma_maps"`
	// PageSizes has a bit for each size of pages that can be mapped.
	PageSizes uint64 `json:"pgsizes"`
}

// DefaultCapabilities are those of a peer that says nothing about them.
func DefaultCapabilities() Capabilities {
	return Capabilities{MaxMsgFDs: 1, MaxDataXferSize: 1 << 20, MaxDMAMaps: 65535, PageSizes: 4096}
}

// Version is both the request and the reply of VERSION. The capabilities are a text that follows the numbers.
type Version struct {
	Major        uint16       `json:"-"`
	Minor        uint16       `json:"-"`
	Capabilities Capabilities `json:"capabilities"`
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
	text, err := json.Marshal(v)
	if err != nil {
		return b, fmt.Errorf("encode capabilities: %w", err)
	}
	return append(append(encode(b, []uint16{v.Major, v.Minor}), text...), 0), nil
}

// DecodeVersion reads a payload of VERSION. Capabilities that it does not name
// are DefaultCapabilities; those that we do not know are left out.
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
	if err := json.Unmarshal(text[:len(text)-1], &v); err != nil {
		field := "version data"
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			field = wrong.Field
		}
		return v, &Error{Message: c.String(), Field: field, Value: uint64(len(text) - 1), Why: err.Error(), Errno: syscall.EINVAL}
	}
	switch is := v.Capabilities; {
	case is.MaxDataXferSize < 8:
		return v, Invalid(c, "max_data_xfer_size", is.MaxDataXferSize, "want at least 8, the largest register")
	case is.PageSizes == 0 || is.PageSizes%4096 != 0:
		return v, Invalid(c, "pgsizes", is.PageSizes, "want a multiple of 4096")
	}
	return v, nil
}
