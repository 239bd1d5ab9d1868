package images_test

import (
	"fmt"
	"log"

	"github.com/trapeze-nic/trapeze/firmware-loader/images"
)

// The images that the project ships are built by name.
func ExampleBuild() {
	spec, err := images.Build("count")
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
