package bench

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Task is a measurement of ours: what, over which wire, with which engine.
type Task struct {
	Spec Spec
	// Wire is a key of wires.
	Wire string
	// Placement of the engines: "" is the wire's usual one, else inline or thread.
	Placement string
	// Cores for the echo and the source; none = wherever the system puts them.
	Cores []int
}

// starting is the time in which processes come up and end, beside the time to measure for.
const starting = 30 * time.Second

func (t *Task) limit() time.Duration { return starting + 2*time.Duration(t.Spec.Nanoseconds) }

// core is the one of a process, negative for any. Over UDP it is any: a goroutine takes the datagrams, and
// would get the only core of a process that polls after 10 ms, when the scheduler preempts it.
func (t *Task) core(i int) int {
	if len(t.Cores) == 0 || t.Wire == "udp" {
		return -1
	}
	return t.Cores[i%len(t.Cores)]
}

// path is a way between two NICs that is set up for one measurement.
type path struct {
	echo, source string // addresses
	single       bool   // one process has both
	folder       string // removed at the end
	cable        *cable // if the ends are in network namespaces of their own
	server       *served
}

func (p *path) remove() {
	if p.folder != "" {
		_ = os.RemoveAll(p.folder)
	}
	if p.cable != nil {
		_ = p.cable.close()
	}
}

// sharedMemory makes paths in memory that two processes share, with a value of option share.
func sharedMemory(share string) func(t *Task) (*path, error) {
	return func(t *Task) (*path, error) {
		return t.sockets(func(folder string) (echo, source string) {
			at := "emu:?wire=shm:" + filepath.Join(folder, "wire") + t.option() + "&share=" + share
			return at + "&role=listen", at + "&role=connect"
		})
	}
}

// wires make paths.
var wires = map[string]func(t *Task) (*path, error){
	"memory": func(t *Task) (*path, error) {
		a := "emu:?wire=mem:trapeze-bench" + t.option()
		return &path{echo: a, source: a, single: true}, nil
	},
	"shm":       sharedMemory("off"),
	"shm-share": sharedMemory("on"),
	"shm-write": sharedMemory("write"),
	"memif": func(t *Task) (*path, error) {
		return t.sockets(func(folder string) (echo, source string) {
			at := "emu:?wire=memif:" + filepath.Join(folder, "wire") + "&mode=poll" + t.option()
			return at + "&role=server", at + "&role=client"
		})
	},
	"udp":       (*Task).udp,
	"vfio-user": (*Task).behindVFIOUser,
	veth:        (*Task).overVeth,
	vethJumbo:   (*Task).overVeth,
	vethLong:    (*Task).overVeth,
}

// Wires returns the names of the wires.
func Wires() []string { return slices.Sorted(maps.Keys(wires)) }

// Validate checks a Task before anything is started. Errors wrap ErrSpec.
func (t *Task) Validate() error {
	if wires[t.Wire] == nil {
		return fmt.Errorf("%w: wire %q (%s)", ErrSpec, t.Wire, strings.Join(Wires(), ", "))
	}
	if t.Placement != "" && t.Placement != "inline" && t.Placement != "thread" {
		return fmt.Errorf("%w: placement %q (default, inline or thread)", ErrSpec, t.Placement)
	}
	if t.Wire == "vfio-user" && t.Placement != "" {
		return fmt.Errorf("%w: placement %q: behind vfio-user the engines have a process of their own", ErrSpec, t.Placement)
	}
	if t.Wire == "memory" && t.Spec.VIs != 1 {
		return fmt.Errorf("%w: %d VIs (over the wire memory: 1)", ErrSpec, t.Spec.VIs)
	}
	return t.Spec.Validate()
}

func (t *Task) path() (*path, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return wires[t.Wire](t)
}

// option is the placement as an option of an address.
func (t *Task) option() string {
	if t.Placement == "" {
		return ""
	}
	return "&engine=" + t.Placement
}

// sockets makes a folder for sockets and a path over them.
func (t *Task) sockets(addresses func(folder string) (echo, source string)) (*path, error) {
	folder, err := os.MkdirTemp("", "trapeze-bench-")
	if err != nil {
		return nil, err
	}
	p := &path{folder: folder}
	p.echo, p.source = addresses(folder)
	return p, nil
}

func (t *Task) udp() (*path, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	address := func(own, peer int) string {
		return fmt.Sprintf("emu:?wire=udp://%s&peer=%s%s", at(own), at(peer), t.option())
	}
	return &path{echo: address(0, 1), source: address(1, 0)}, nil
}

// freePorts finds ports that are not in use now.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, err
		}
		// Kept until all are found, so that they differ.
		defer c.Close()
		ports = append(ports, c.LocalAddr().(*net.UDPAddr).Port)
	}
	return ports, nil
}

// behindVFIOUser puts both NICs in a process of their own, behind vfio-user.
func (t *Task) behindVFIOUser() (*path, error) {
	p, err := t.sockets(func(folder string) (echo, source string) {
		return "vfio-user:" + filepath.Join(folder, "nic0"), "vfio-user:" + filepath.Join(folder, "nic1")
	})
	if err != nil {
		return nil, err
	}
	p.server = &served{Sockets: []string{filepath.Join(p.folder, "nic0"), filepath.Join(p.folder, "nic1")}}
	return p, nil
}

// awaitFiles waits until files are there.
func awaitFiles(ctx context.Context, names []string) error {
	for _, name := range names {
		for {
			if _, err := os.Stat(name); err == nil {
				break
			}
			if err := sleep(ctx, lookPause); err != nil {
				return fmt.Errorf("%s does not appear: %w", name, err)
			}
		}
	}
	return nil
}
