// Command trapeze shows, tests and uses NICs that are driven from user space.
package main

import (
	"context"
	"os"

	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cli"
)

func main() {
	ctx, stop := cli.WithSignals(context.Background())
	code := cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
