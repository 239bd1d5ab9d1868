// Command trapeze shows, tests and uses NICs that are driven from user space.
package main

import (
	"os"

	"github.com/trapeze-nic/trapeze/tools/trapeze"
)

func main() { os.Exit(trapeze.Main()) }
