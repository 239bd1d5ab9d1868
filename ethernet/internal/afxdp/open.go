package afxdp

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/vfio"
)

func init() { ethernet.RegisterScheme(ethernet.SchemeAFXDP, open) }

// Values of options that are asked for; "auto" is none of these.
const (
	native, generic = "native", "generic" // ways to attach the program
	zero, copying   = "zero", "copy"
)

// options are those of an address.
type options struct {
	Mode  string `option:"mode" oneof:"auto,native,generic"`
	Copy  string `option:"copy" oneof:"auto,zero,copy"`
	First int    `option:"queue" range:"0..4095"` // queue of the interface that is queue 0 of the port
}

// parse reads an address. It fails with vfio.ErrBadAddress.
func parse(a vfio.Address) (o options, err error) {
	if a.Path == "" || len(a.Path) >= unix.IFNAMSIZ {
		return o, a.Refuse(fmt.Errorf("interface %q", a.Path), "give the name of an interface: afxdp:eth0")
	}
	if err := a.Decode(&o); err != nil {
		return o, err
	}
	if o.Mode == generic && o.Copy == zero {
		return o, a.Refuse(errors.New("mode=generic and copy=zero"), "zero copy is the driver's: it needs mode=native")
	}
	return o, nil
}

// open opens the interface at an address, see the package's comment. It fails with
// vfio.ErrBadAddress and the errors of ethernet.Open.
func open(ctx context.Context, a vfio.Address, c ethernet.Options) (ethernet.Port, error) {
	o, err := parse(a)
	if err != nil {
		return nil, err
	}
	hint, err := refuse(c)
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
	return port.Open(ctx, &device{name: a.Path, options: o, geometry: geometry},
		ethernet.Info{Device: a.String(), Driver: ethernet.SchemeAFXDP, Options: c})
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
