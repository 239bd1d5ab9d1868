package cli

import (
	"fmt"
	"net"
)

// amount prints a large number of bytes to a few digits.
func amount(n uint64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}

// peerAddress is the device address of a sender whose peer listens on the UDP
// address hostPort. It takes any free port of its own.
func peerAddress(hostPort string) string {
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
