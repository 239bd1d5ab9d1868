package cells_test

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/cells"
)

// A short message of high priority goes between two cells of a long one.
func Example() {
	var low, high cells.Cutter
	_ = low.Start(130, 0)
	for low.Active() {
		w := cells.Waiting{High: high.Active(), Low: low.Active()}
		c, step := &low, w.Next()
		if step == cells.High {
			c = &high
		}
		bytes, last := c.Next()
		fmt.Println(step, bytes, "bytes, last:", last)
		c.Seal(new([cells.PayloadSize]byte))
		if step == cells.Low && bytes == cells.PayloadSize {
			_ = high.Start(8, 0)
		}
	}
	// Output:
	// low 48 bytes, last: false
	// high 8 bytes, last: true
	// low 48 bytes, last: false
	// high 8 bytes, last: true
	// low 34 bytes, last: true
}
