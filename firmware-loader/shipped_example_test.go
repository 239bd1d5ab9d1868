package firmware_test

import (
	"fmt"
	"log"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
)

// The images that the project ships are built by name.
func ExampleBuildShipped() {
	spec, err := firmware.BuildShipped("count")
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range spec.Maps {
		fmt.Printf("map %s: %d entries\n", m.Name, m.Entries)
	}
	// Output:
	// map flows: 1024 entries
	// map rest: 1 entries
}
