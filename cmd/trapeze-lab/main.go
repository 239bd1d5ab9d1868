// Command trapeze-lab measures NICs, models them, and draws what came of it.
package main

import (
	"os"

	lab "github.com/trapeze-nic/trapeze/tools/trapeze-lab"
)

func main() { os.Exit(lab.Main()) }
