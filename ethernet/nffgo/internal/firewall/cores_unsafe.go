//go:build nffgo

package firewall

import _ "unsafe" // for go:linkname

// These have the layout of nff-go v0.9.2's own types, up to the last field that is used.
type (
	core struct {
		_ int  // its number
		_ bool // whether it is free
	}
	scheduler struct {
		_         []uintptr // functions
		cores     []core
		_         [4]bool
		_         []uintptr // rings
		_         uint8
		_         [3]uint
		_         uint32
		_         int32
		_         int
		_         [2][]uintptr // timers, attempts
		pAttempts []uint64
	}
)

//go:linkname schedState github.com/intel-go/nff-go/flow.schedState
var schedState *scheduler

// shareCores lets nff-go, after flow.SystemInit, run several functions on a core if there
// are less than so many cores. It has no setting for that. All cores are free.
func shareCores(functions int) {
	for i := 0; len(schedState.cores) < functions; i++ {
		schedState.cores = append(schedState.cores, schedState.cores[i])
		schedState.pAttempts = append(schedState.pAttempts, 0)
	}
}
