// Command trapeze-lab measures NICs, models them, and draws what came of it.
package main

import "os"

func main() { os.Exit(program.Main()) }
