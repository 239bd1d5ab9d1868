// Package trapeze is the command of that name, but for its main function in cmd/trapeze.
package trapeze

import "github.com/trapeze-nic/trapeze/tools/trapeze/internal/cli"

// Main runs the command with what this process has been given, and returns its exit code.
func Main() int { return cli.Program.Main() }
