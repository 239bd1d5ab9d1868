// Package peer opens the devices by which commands reach other processes, and says what their
// addresses are.
package peer

import (
	"fmt"
	"net"
	"strings"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// CheckDevice refuses devices that cannot reach another process, with an *option.Error if
// none is named, and else a *command.DeviceError. Open does it, too.
func CheckDevice(device string) error {
	if device == "" {
		return &option.Error{Option: "--device", Allowed: "the address of a NIC, as in --device 'emu:?wire=udp://127.0.0.1:9000'"}
	}
	a, err := vfio.ParseKnown(device)
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
		return &command.DeviceError{Err: fmt.Errorf("device %s: its wire ends at itself, no other NIC is on it (add wire=udp://HOST:PORT, see 'trapeze list')", device)}
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

// Target returns the address of the NIC to reach: any if s is empty.
func Target(s string) (via.MAC, error) {
	if s == "" {
		return datasheet.Broadcast, nil
	}
	return ParseMAC(s)
}

// Hint is the device address with which a program on the same machine can
// reach the NIC at address; empty if that is not known.
func Hint(address string) string {
	a, err := vfio.ParseAddress(address)
	if err != nil || a.Scheme != "emu" {
		return ""
	}
	hostPort, ok := strings.CutPrefix(a.Options.Get("wire"), "udp://")
	if !ok {
		return ""
	}
	to := addressOf(hostPort)
	if key := a.Options.Get("key"); to != "" && key != "" {
		to += "&key=" + key
	}
	return to
}

// addressOf is the device address of a sender whose peer listens on the UDP
// address hostPort. It takes any free port of its own.
func addressOf(hostPort string) string {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil || port == "0" {
		return ""
	}
	peer := hostPort
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		peer = net.JoinHostPort("THIS-HOST", port)
	}
	return fmt.Sprintf("emu:?wire=udp://%s&peer=%s", net.JoinHostPort(host, "0"), peer)
}
