// Command trapeze shows, tests and uses NICs that are driven from user space.
package main

import (
	"os"

	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cli"
)

func main() { os.Exit(cli.Program.Main()) }
