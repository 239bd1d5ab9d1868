package hostpci

import (
	"os"
	"path"
	"strings"
)

const netClass = "sys/class/net"

// readNetdevs lists the network interfaces of each function, sorted. They may be those of a
// device on the function, as a virtio device is, so the nearest function above
// an interface counts.
func readNetdevs(r Root) (map[string][]string, error) {
	names, err := r.Names(netClass)
	if err != nil {
		return nil, err
	}
	of := map[string][]string{}
	for _, name := range names {
		if owner := ownerOf(r, path.Join(netClass, name)); owner != "" {
			of[owner] = append(of[owner], name)
		}
	}
	return of, nil
}

// ownerOf returns the function that a device of some class belongs to.
func ownerOf(r Root, name string) string {
	target, err := os.Readlink(r.Path(name))
	if err != nil {
		return ""
	}
	above := functionsIn(target)
	if len(above) == 0 {
		return ""
	}
	return above[len(above)-1]
}

// upper is an interface that sits on another.
type upper struct {
	name string
	// lower is the interface below it, kind its type: "bond", "bridge", "vlan" ….
	lower, kind string
	master      bool
}

// uppersOf lists what sits on an interface, directly or not.
func uppersOf(r Root, netdev string) ([]upper, error) {
	var found []upper
	seen := map[string]bool{netdev: true}
	for queue := []string{netdev}; len(queue) > 0; queue = queue[1:] {
		names, err := r.Names(path.Join(netClass, queue[0]))
		if err != nil {
			return nil, err
		}
		master, err := r.Link(path.Join(netClass, queue[0], "master"))
		if err != nil {
			return nil, err
		}
		if master != "" {
			names = append(names, "upper_"+master)
		}
		for _, n := range names {
			// Every interface on top has a link of this name; so has a master.
			name, ok := strings.CutPrefix(n, "upper_")
			if !ok || seen[name] {
				continue
			}
			seen[name] = true
			found = append(found, upper{name: name, lower: queue[0], kind: kindOf(r, name), master: name == master})
			queue = append(queue, name)
		}
	}
	return found, nil
}

// kindOf names the kind of an interface in software.
func kindOf(r Root, netdev string) string {
	dir := path.Join(netClass, netdev)
	for _, k := range []struct{ file, kind string }{{"bonding", "bond"}, {"bridge", "bridge"}} {
		if r.Exists(path.Join(dir, k.file)) {
			return k.kind
		}
	}
	for line := range strings.Lines(r.Optional(path.Join(dir, "uevent"))) {
		if kind, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
			return kind
		}
	}
	return "interface"
}
