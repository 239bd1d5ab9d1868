package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

const (
	// variable names devices: words NAME=ADDRESS, an address for all names, or the path of
	// a file as namesFile.
	variable = "TRAPEZE_VIPL"
	// namesFile has such words too, if the variable is not set, and comments behind #.
	namesFile = "/etc/trapeze/vipl.conf"
)

var errNoDevice = fmt.Errorf("%w: no device of this name; set %s to NAME=ADDRESS, or write that into %s",
	via.ErrInvalidParameter, variable, namesFile)

// addressOf returns the device address that a name stands for. A name with a colon in it
// is one.
func addressOf(name string) (string, error) {
	if isAddress(name) {
		return name, nil
	}
	words := os.Getenv(variable)
	if words == "" || strings.HasPrefix(words, "/") && !strings.Contains(words, "=") {
		content, err := os.ReadFile(cmp.Or(words, namesFile))
		if words == "" && errors.Is(err, os.ErrNotExist) {
			return "", errNoDevice
		}
		if err != nil {
			return "", err
		}
		words = string(content)
	}
	for line := range strings.Lines(words) {
		line, _, _ = strings.Cut(line, "#")
		for _, w := range strings.Fields(line) {
			if isAddress(w) {
				return w, nil
			}
			if n, address, ok := strings.Cut(w, "="); ok && n == name {
				return address, nil
			}
		}
	}
	return "", errNoDevice
}

// running adds to the address of an emulated NIC that it runs on a thread of its own, unless
// the address says which. Programs for VIA write to each other's memory, and look for the
// last byte without a call; they expect NICs that make progress meanwhile.
func running(address string) string {
	a, err := vfio.ParseAddress(address)
	if err != nil || a.Scheme != "emu" || a.Options.Has("engine") {
		return address // what is wrong with it, Open says
	}
	separator := "?"
	if strings.Contains(address, "?") {
		separator = "&"
	}
	return address + separator + "engine=thread"
}

// isAddress says whether s is a device address and no name.
func isAddress(s string) bool {
	scheme, _, ok := strings.Cut(s, ":")
	return ok && !strings.ContainsAny(scheme, "/=")
}

// logger writes what goes wrong in the background to stderr, as programs that set no
// handler expect.
var logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

// device is an open NIC. Programs may open it several times: each time they get a handle
// with objects of its own.
type device struct {
	address string
	via     *via.NIC
	vis     sync.Map // *via.VI to *vi

	mu    sync.Mutex
	users map[*nic]bool // guarded by mu
}

// devices are the devices that are open, by address. mu is held while one is opened or
// closed.
var devices = struct {
	mu   sync.Mutex
	open map[string]*device
}{open: map[string]*device{}}

// openDevice opens the device at an address for n, unless that has been done.
func openDevice(address string, n *nic) (*device, error) {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	d := devices.open[address]
	if d == nil {
		opened, err := via.Open(context.Background(), address, via.Options{Logger: logger})
		if err != nil {
			return nil, err
		}
		d = &device{address: address, via: opened, users: map[*nic]bool{}}
		devices.open[address] = d
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users[n] = true
	return d, nil
}

// leave ends the use of a device by n. The last to leave closes it.
func (d *device) leave(n *nic) error {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	d.mu.Lock()
	delete(d.users, n)
	last := len(d.users) == 0
	d.mu.Unlock()
	if !last {
		d.setHandlers()
		return nil
	}
	delete(devices.open, d.address)
	return d.via.Close()
}

// setHandlers has asynchronous errors reported to the handlers of all users; if there are
// none, package via logs them.
func (d *device) setHandlers() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := range d.users {
		if n.handler.Load() != nil {
			d.via.OnError(d.report)
			return
		}
	}
	d.via.OnError(nil)
}

// report hands an error to the user whose object it is about, or to all.
func (d *device) report(e via.AsyncError) {
	if e.Code > via.AsyncCatastrophic && e.Code != via.AsyncCQOverrun {
		return // VIA has no such error
	}
	var users []*nic
	var about *vi
	if e.VI != nil {
		if v, ok := d.vis.Load(e.VI); ok {
			about = v.(*vi)
			users = append(users, about.nic)
		}
	}
	if users == nil {
		d.mu.Lock()
		for n := range d.users {
			users = append(users, n)
		}
		d.mu.Unlock()
	}
	for _, n := range users {
		h := n.handler.Load()
		if h == nil {
			logger.Warn("asynchronous error of a NIC", "device", d.address, "error", e.Code)
			continue
		}
		h.call(n, about, e)
	}
}
