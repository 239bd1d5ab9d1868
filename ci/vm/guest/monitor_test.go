package guest

import "os"

// monitor sends a command to QEMU's monitor: the host reads it from the
// console.
func monitor(command string) {
	os.Stdout.WriteString("\nTRAPEZE-MONITOR " + command + "\n")
}
