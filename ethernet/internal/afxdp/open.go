package afxdp

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/vfio"
)

func init() { ethernet.RegisterScheme(ethernet.SchemeAFXDP, open) }

// options are those of an address.
type options struct {
	native, generic bool // only this way to attach the program
	zero, copy      bool // only zero copy, or copying
	first           int  // queue of the interface that is queue 0 of the port
}

// maxQueue bounds the option queue.
const maxQueue = 4095

// parse reads the options of an address. It fails with vfio.ErrBadAddress.
func parse(a vfio.Address) (o options, hint string, err error) {
	bad := func(hint, what string, args ...any) (options, string, error) {
		return options{}, hint, fmt.Errorf("%w: %s", vfio.ErrBadAddress, fmt.Sprintf(what, args...))
	}
	if a.Path == "" || len(a.Path) >= unix.IFNAMSIZ {
		return bad("give the name of an interface: afxdp:eth0", "interface %q", a.Path)
	}
	for name, values := range a.Options {
		v := values[0]
		switch name {
		case "mode":
			o.native, o.generic = v == "native", v == "generic"
			if !o.native && !o.generic && v != "auto" {
				return bad("use mode=auto, mode=native or mode=generic", "mode=%s", v)
			}
		case "copy":
			o.zero, o.copy = v == "zero", v == "copy"
			if !o.zero && !o.copy && v != "auto" {
				return bad("use copy=auto, copy=zero or copy=copy", "copy=%s", v)
			}
		case "queue":
			n, err := strconv.Atoi(v)
			if err != nil || n < 0 || n > maxQueue {
				return bad(fmt.Sprintf("use a number from 0 to %d", maxQueue), "queue=%s", v)
			}
			o.first = n
		default:
			return bad("there are mode, copy and queue", "option %q", name)
		}
	}
	if o.generic && o.zero {
		return bad("zero copy is the driver's: it needs mode=native", "mode=generic and copy=zero")
	}
	return o, "", nil
}

// open opens the interface at an address, see the package's comment. It fails with
// vfio.ErrBadAddress and the errors of ethernet.Open.
func open(ctx context.Context, a vfio.Address, c ethernet.Options) (ethernet.Port, error) {
	o, hint, err := parse(a)
	if err == nil {
		hint, err = refuse(c)
	}
	if err == nil {
		c, err = c.CheckUpTo(ethernet.MaxMTUOverAFXDP)
	}
	var geometry geometry
	if err == nil {
		geometry, err = o.geometry(c)
	}
	if err != nil {
		return nil, &ethernet.Error{Op: "open", Device: a.String(), Err: err, Hint: hint}
	}
	p, err := port.Open(ctx, &device{name: a.Path, options: o, geometry: geometry},
		ethernet.Info{Device: a.String(), Driver: ethernet.SchemeAFXDP, Options: c})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// refuse refuses what the kernel's driver has to be told by other means, as it would
// outlast this process.
func refuse(c ethernet.Options) (hint string, err error) {
	// The defaults are there whatever else is wrong.
	defaults, _ := ethernet.Options{Pool: c.Pool}.Check()
	switch {
	case c.Offloads&ethernet.OffloadAll != 0:
		return "AF_XDP has none: compute and check in software", fmt.Errorf("%w: offloads (%v)", ethernet.ErrNotSupported, c.Offloads)
	case c.Moderation != 0:
		return "set it with ethtool -C", fmt.Errorf("%w: Options.Moderation", ethernet.ErrNotSupported)
	case c.HashKey != [40]byte{} && c.Pool != nil && c.HashKey != defaults.HashKey:
		return "set it with ethtool -X", fmt.Errorf("%w: Options.HashKey", ethernet.ErrNotSupported)
	}
	return "", nil
}

// errBusy: the kernel says that another process has what is asked for.
func errBusy(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) }
