// Package peer is what commands say of devices and addresses by which another process is
// reached.
package peer

import (
	"fmt"
	"net"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// CheckDevice refuses devices that cannot reach another process, with an *option.Error if
// none is named, and else a *command.DeviceError.
func CheckDevice(device string) error {
	if device == "" {
		return &option.Error{Option: "--device", Allowed: "the address of a NIC, as in --device 'emu:?wire=udp://127.0.0.1:9000'"}
	}
	a, err := vfio.ParseAddress(device)
	if err != nil {
		return &command.DeviceError{Err: err}
	}
	if a.Scheme != emulator.Scheme && a.Scheme != emulator.EthernetScheme {
		return nil
	}
	if err := emulator.CheckAddress(a); err != nil {
		return &command.DeviceError{Err: err}
	}
	if wire := a.Options.Get("wire"); a.Scheme == emulator.Scheme && (wire == "" || wire == "loop") {
		return &command.DeviceError{Err: fmt.Errorf("device %s: its wire ends at itself, nobody else is on it (add wire=udp://HOST:PORT, see 'trapeze list')", device)}
	}
	return nil
}

// ParseMAC reads six bytes in hexadecimal with colons.
func ParseMAC(s string) (via.MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != len(via.MAC{}) {
		return via.MAC{}, option.Errorf("%q is not a MAC address such as 02:00:00:00:00:01", s)
	}
	return via.MAC(hw), nil
}
