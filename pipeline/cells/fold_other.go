//go:build !amd64

package cells

// folds: nothing but tables here.
const folds = false

func foldBlocks(uint32, []byte) uint64           { return 0 }
func foldCell(uint32, *[PayloadSize]byte) uint64 { return 0 }
