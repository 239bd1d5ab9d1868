package checker

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
)

// checkMaps refuses maps outside the limits of package abi: the proof rests on
// their sizes.
func checkMaps(maps []abi.Map) *Refusal {
	if len(maps) > abi.MaxMaps {
		return refuse(ErrMap, "%d maps; at most %d are allowed", len(maps), abi.MaxMaps)
	}
	for i := range maps {
		if problem := mapProblem(&maps[i]); problem != "" {
			return refuse(ErrMap, "map %d %.32q: %s", i, maps[i].Name, problem)
		}
	}
	return nil
}

func mapProblem(m *abi.Map) string {
	outside := func(what string, v, limit uint32) string {
		if v == 0 || v > limit {
			return fmt.Sprintf("%s %d; 1 to %d are allowed", what, v, limit)
		}
		return ""
	}
	switch {
	case len(m.Name) == 0 || len(m.Name) > abi.MaxNameLength:
		return fmt.Sprintf("a name of %d bytes; 1 to %d are allowed", len(m.Name), abi.MaxNameLength)
	case m.Type != abi.MapArray && m.Type != abi.MapHash:
		return fmt.Sprintf("%v is not known", m.Type)
	case m.Type == abi.MapArray && m.Key != 4:
		return fmt.Sprintf("keys of %d bytes; those of an array have 4", m.Key)
	case m.Flags&^abi.MapReadOnly != 0:
		return fmt.Sprintf("unknown flags %#x", m.Flags&^abi.MapReadOnly)
	case m.Type != abi.MapArray && m.Contents != nil:
		return "only arrays have initial contents"
	case uint64(len(m.Contents)) > uint64(m.Value)*uint64(m.Entries):
		return fmt.Sprintf("%d bytes of contents are more than it has", len(m.Contents))
	}
	for _, problem := range []string{
		outside("key size", m.Key, abi.MaxKey),
		outside("value size", m.Value, abi.MaxValue),
		outside("entries", m.Entries, abi.MaxEntries),
	} {
		if problem != "" {
			return problem
		}
	}
	return ""
}
