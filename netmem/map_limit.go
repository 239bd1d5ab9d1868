package netmem

import (
	"fmt"
	"os"
	"path/filepath"
)

// fits says whether this process may have so many bytes of memory. More than its control group
// may have would not fail: it would end the process.
func fits(local int64) error {
	limit, file := MemoryLimit(func(name string) string {
		b, err := os.ReadFile(filepath.Join("/", name))
		if err != nil {
			return "" // there is no such limit
		}
		return string(b)
	})
	if file == "" || uint64(local) <= limit {
		return nil
	}
	return &MapError{Op: "map memory", Err: fmt.Errorf("%w: %d bytes of local memory, and %s allows %d", ErrLocal, local, file, limit),
		Hint: "give less local memory, or raise MemoryMax= of the service"}
}
