package firmware_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// abiValues are the constants of package abi that section 14 of the data sheet has
// in its tables.
var abiValues = map[string]uint64{
	"PulseTx": uint64(abi.PulseTx), "PulseRx": uint64(abi.PulseRx), "DemuxRx": uint64(abi.DemuxRx),
	"FilterTx": uint64(abi.FilterTx), "FilterRx": uint64(abi.FilterRx),
	"PulseLength": abi.PulseLength, "PulseArrived": abi.PulseArrived, "PulseSent": abi.PulseSent,
	"PulseQueued": abi.PulseQueued, "PulseMinimum": abi.PulseMinimum, "PulseFrame": abi.PulseFrame,
	"FrameData": abi.FrameData, "FrameDataEnd": abi.FrameDataEnd, "FrameMeta": abi.FrameMeta,
	"FrameInterface": abi.FrameInterface, "FrameQueue": abi.FrameQueue,
	"FilterAborted": abi.FilterAborted, "FilterDrop": abi.FilterDrop, "FilterPass": abi.FilterPass, "FilterRedirect": abi.FilterRedirect,
	"PulseBudget": abi.PulseBudget, "FrameBudget": abi.FrameBudget, "MaxInstructions": abi.MaxInstructions, "StackSize": abi.StackSize,
	"MaxMaps": abi.MaxMaps, "MaxKey": abi.MaxKey, "MaxValue": abi.MaxValue, "MaxEntries": abi.MaxEntries,
	"MaxNameLength": abi.MaxNameLength, "MaxVersionLength": abi.MaxVersionLength, "MaxBuildID": abi.MaxBuildID,
	"HelperMapLookup": uint64(abi.HelperMapLookup), "HelperMapUpdate": uint64(abi.HelperMapUpdate),
	"HelperMapDelete": uint64(abi.HelperMapDelete), "HelperTime": uint64(abi.HelperTime),
	"MapHash": uint64(abi.MapHash), "MapArray": uint64(abi.MapArray),
}

// TestDataSheet compares the tables of the data sheet that have a column "abi"
// with the package, both ways.
func TestDataSheet(t *testing.T) {
	b := must.Get(os.ReadFile("../descriptors/SPEC.md"))(t)
	_, sheet, ok := strings.Cut(string(b), "\n## 14. Control programs\n")
	must.Hold(t, ok, "the data sheet has no section 14")
	seen := map[string]bool{}
	column := -1
	for line := range strings.Lines(sheet) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			column = -1
			continue
		case len(cells) > 1 && cells[1] == "abi":
			column = 1
			continue
		case column < 0 || strings.HasPrefix(cells[0], "-"):
			continue
		}
		name := cells[column]
		want, ok := abiValues[name]
		if got, err := strconv.ParseUint(cells[0], 0, 64); !ok || err != nil || got != want || seen[name] {
			t.Errorf("the sheet has %s = %s (%v), the package %d (%v), seen before: %v", name, cells[0], err, want, ok, seen[name])
		}
		seen[name] = true
	}
	for name := range abiValues {
		should.Hold(t, seen[name], "%s is in no table", name)
	}
	for h := range abi.Hooks {
		should.Contain(t, sheet, fmt.Sprintf("| %s | ", h), "hook %s is in no table", h)
	}
	for _, want := range []string{
		fmt.Sprintf("has %d (`PulseSize`) bytes", abi.PulseSize), fmt.Sprintf("has %d (`FrameContextSize`) bytes", abi.FrameContextSize),
		fmt.Sprintf("%#x (`DemuxDefault`)", abi.DemuxDefault), fmt.Sprintf("%#x (`MapReadOnly`)", abi.MapReadOnly),
		fmt.Sprintf("ABI is %d.%d (`Version`)", abi.Version>>16, abi.Version&0xffff),
	} {
		should.Contain(t, strings.Join(strings.Fields(sheet), " "), want, "the sheet does not say")
	}
}

// TestHeader compares the C header with the package.
func TestHeader(t *testing.T) {
	b := must.Get(os.ReadFile("internal/images/c/trapeze.h"))(t)
	text := string(b)
	for name, want := range map[string]uint64{
		"TRAPEZE_ABI": uint64(abi.Version), "TRAPEZE_HASH": uint64(abi.MapHash), "TRAPEZE_ARRAY": uint64(abi.MapArray),
		"TRAPEZE_READ_ONLY": uint64(abi.MapReadOnly), "TRAPEZE_DEFAULT": uint64(abi.DemuxDefault),
		"TRAPEZE_ABORTED =": abi.FilterAborted, "TRAPEZE_DROP =": abi.FilterDrop, "TRAPEZE_PASS =": abi.FilterPass, "TRAPEZE_REDIRECT =": abi.FilterRedirect,
	} {
		m := regexp.MustCompile(regexp.QuoteMeta(name) + ` (0x[0-9a-f]+|\d+)`).FindStringSubmatch(text)
		if m == nil {
			t.Errorf("no %s", name)
		} else if got, err := strconv.ParseUint(m[1], 0, 64); err != nil || got != want {
			t.Errorf("%s is %s, want %#x", name, m[1], want)
		}
	}
	for name, want := range map[string]abi.Helper{
		"trapeze_lookup": abi.HelperMapLookup, "trapeze_update": abi.HelperMapUpdate, "trapeze_delete": abi.HelperMapDelete, "trapeze_time": abi.HelperTime,
	} {
		should.Hold(t, regexp.MustCompile(fmt.Sprintf(`const %s\)\(.*\) .*= \(void \*\)%d;`, name, want)).MatchString(text),
			"%s is not helper %d", name, want)
	}
	for name, fields := range map[string]map[string]int{
		"trapeze_pulse": {"length": abi.PulseLength, "arrived": abi.PulseArrived, "sent": abi.PulseSent, "queued": abi.PulseQueued, "minimum": abi.PulseMinimum, "frame": abi.PulseFrame},
		"trapeze_frame": {"data": abi.FrameData, "data_end": abi.FrameDataEnd, "data_meta": abi.FrameMeta, "interface": abi.FrameInterface, "queue": abi.FrameQueue},
	} {
		body := regexp.MustCompile(`(?s)struct ` + name + ` \{(.*?)\};`).FindStringSubmatch(text)
		if body == nil {
			t.Errorf("no struct %s", name)
			continue
		}
		for i, m := range regexp.MustCompile(`u32 (\w+);`).FindAllStringSubmatch(body[1], -1) {
			if want, ok := fields[m[1]]; !ok || want != 4*i {
				t.Errorf("%s.%s stands at %d, want %d", name, m[1], 4*i, want)
			}
			delete(fields, m[1])
		}
		should.Be(t, len(fields), 0, "%s lacks %v", name, fields)
	}
}
