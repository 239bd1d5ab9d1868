// Package arrows checks how the parts of this repository may use each other,
// and the few rules about source files that no other tool checks.
package arrows

import "strings"

// rooms lists, for each room of the house, the other rooms that its code may
// import. Rooms in the list of joiners may import everything and be imported by
// nobody. Tests may import everything. internal/atomicmem is a room of its own below
// all others, as the data sheet uses it.
var rooms = map[string][]string{
	"vfio":            {"internal"},
	"atomicmem":       {},
	"descriptors":     {"atomicmem"},
	"pipeline":        {},
	"firmware-loader": {"descriptors"},
	"internal":        {"descriptors", "atomicmem"},
	"engine":          {"descriptors", "pipeline", "internal"},
	"ethernet":        {"vfio", "internal", "atomicmem"},
	"wire":            {"engine", "ethernet", "vfio", "descriptors", "internal", "atomicmem"},
	"emulator":        {"engine", "wire", "pipeline", "firmware-loader", "vfio", "descriptors", "internal", "atomicmem"},
	"driver":          {"pipeline", "firmware-loader", "vfio", "descriptors", "internal"},
	"via":             {"driver", "pipeline", "firmware-loader", "vfio", "descriptors", "internal"},
	"ring":            {"via", "driver", "descriptors", "internal"},
	"netmem":          {"ring", "via", "vfio", "descriptors", "internal"},
	"channel":         {"via", "driver", "pipeline", "descriptors", "internal"},
	"vipl":            {"via", "driver", "emulator", "vfio", "descriptors", "internal"},
	"lab":             {"netmem", "ring", "via", "driver", "emulator", "wire", "pipeline", "vfio", "descriptors", "internal"},
}

var joiners = []string{"tools", "examples", "ci"}

// roomOf returns the room of a slash-separated path inside the module: its
// first part. What a room does not promise to users, but other rooms use, is in
// internal/ROOM.
func roomOf(path string) string {
	first, rest, _ := strings.Cut(path, "/")
	if first == "internal" {
		second, _, _ := strings.Cut(rest, "/")
		if _, room := rooms[second]; room {
			return second
		}
	}
	return first
}

func isJoiner(room string) bool {
	for _, j := range joiners {
		if room == j {
			return true
		}
	}
	return false
}

// checkImport says what is wrong with code in room from importing a package in
// room to; empty if nothing is.
func checkImport(from, to string) string {
	if from == to {
		return ""
	}
	if isJoiner(to) {
		return "nobody imports " + to
	}
	if _, known := rooms[to]; !known {
		return to + " is not a room: enter it in ci/arrows/rooms_test.go"
	}
	if isJoiner(from) {
		return ""
	}
	allowed, known := rooms[from]
	if !known {
		return from + " is not a room: enter it in ci/arrows/rooms_test.go"
	}
	for _, a := range allowed {
		if a == to {
			return ""
		}
	}
	if len(allowed) == 0 {
		return from + " imports none of our packages, not " + to
	}
	return from + " may import " + strings.Join(allowed, ", ") + ", not " + to
}
