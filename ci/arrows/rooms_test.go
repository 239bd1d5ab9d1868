// Package arrows checks how the parts of this repository may use each other,
// and the few rules about source files that no other tool checks.
package arrows

import (
	"slices"
	"strings"
)

// rooms lists, for each room of the house, the other rooms that its code may import. A room
// is a folder at the top, or a part of one that has arrows of its own. Tests may import
// everything.
var rooms = map[string][]string{
	"internal":                  {},
	"vfio":                      {"internal"},
	"descriptors":               {"internal"},
	"pipeline":                  {},
	"firmware-loader":           {"descriptors", "internal"},
	"engine":                    {"descriptors", "pipeline", "internal"},
	"firmware-loader/processor": {"firmware-loader", "engine", "descriptors", "pipeline", "internal"},
	"ethernet":                  {"vfio", "internal"},
	"wire":                      {"engine", "ethernet", "vfio", "descriptors", "internal"},
	"emulator":                  {"firmware-loader/processor", "engine", "wire", "pipeline", "firmware-loader", "vfio", "descriptors", "internal"},
	"driver":                    {"pipeline", "firmware-loader", "vfio", "descriptors", "internal"},
	"via":                       {"driver", "pipeline", "firmware-loader", "vfio", "descriptors", "internal"},
	"ring":                      {"via", "driver", "descriptors", "internal"},
	"channel":                   {"via", "driver", "pipeline", "descriptors", "internal"},
	"netmem":                    {"ring", "via", "vfio", "descriptors", "internal"},
	"tcpip":                     {"emulator", "ethernet", "vfio", "ring", "via", "internal"},
	"conform":                   {"via", "ring", "channel", "driver", "vfio", "descriptors", "pipeline", "internal"},
	"metrics":                   {"driver", "internal"},
	"kubernetes":                {"via", "ethernet", "vfio", "descriptors", "internal"},
	"vipl":                      {"via", "driver", "emulator", "ethernet", "vfio", "descriptors", "internal"},
	"lab":                       {"netmem", "ring", "via", "driver", "emulator", "wire", "pipeline", "engine", "vfio", "descriptors", "internal"},
}

// joiners may import everything. Only tests import them, and programs their tools.
var joiners = []string{"cmd", "tools", "examples", "ci"}

// leaves is the room of packages that import no room, and that two rooms at least use. What
// one room alone needs stands in an internal folder of that room.
const leaves = "internal"

// roomOf returns the room of a slash-separated path inside the module.
func roomOf(path string) string {
	parts := strings.SplitN(path, "/", 3)
	if len(parts) > 1 {
		if inner := parts[0] + "/" + parts[1]; rooms[inner] != nil {
			return inner
		}
	}
	return parts[0]
}

func isJoiner(room string) bool { return slices.Contains(joiners, room) }

// checkImport says what is wrong with code in room from importing a package in
// room to; empty if nothing is.
func checkImport(from, to string) string {
	if from == to {
		return ""
	}
	if isJoiner(to) && (from != "cmd" || to != "tools") {
		return "only tests import " + to
	}
	if _, known := rooms[to]; !known && !isJoiner(to) {
		return to + " is not a room: enter it in ci/arrows/rooms_test.go"
	}
	if isJoiner(from) {
		return ""
	}
	allowed, known := rooms[from]
	if !known {
		return from + " is not a room: enter it in ci/arrows/rooms_test.go"
	}
	if slices.Contains(allowed, to) {
		return ""
	}
	if len(allowed) == 0 {
		return from + " imports none of our packages, not " + to
	}
	return from + " may import " + strings.Join(allowed, ", ") + ", not " + to
}
