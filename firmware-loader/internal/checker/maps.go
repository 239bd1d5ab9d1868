package checker

import (
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// checkMaps refuses maps outside the limits of package abi: the proof rests on
// their sizes.
func checkMaps(maps []abi.Map) *Refusal {
	if len(maps) > abi.MaxMaps {
		return refuse(ErrMap, "%d maps; at most %d are allowed", len(maps), abi.MaxMaps)
	}
	for _, m := range maps {
		if len(m.Name) > abi.MaxNameLength { // too long to be repeated in an error
			return refuse(ErrMap, "a name of %d bytes; 1 to %d are allowed", len(m.Name), abi.MaxNameLength)
		}
		if err := flat.CheckMap(m); err != nil {
			return refuse(ErrMap, "%v", err)
		}
	}
	return nil
}
