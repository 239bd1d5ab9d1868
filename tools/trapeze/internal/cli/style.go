package cli

import (
	"fmt"
	"net"
	"strconv"
	"time"
)

// size prints a number of bytes as people name it.
func size(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + " MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + " KiB"
	}
	return strconv.Itoa(n) + " B"
}

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

// microseconds converts for JSON and tables.
func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

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
