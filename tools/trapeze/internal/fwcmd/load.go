package fwcmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/progress"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/vfio"
)

// loaded is what load --json prints.
type loaded struct {
	Device    string            `json:"device"`
	Backend   string            `json:"backend"`
	Image     string            `json:"image"`
	Name      string            `json:"name"`
	Version   string            `json:"version"`
	Digest    string            `json:"digest"`
	Bytes     int               `json:"image_bytes"`
	Signature signatureState    `json:"signature"`
	Hooks     []checkedHook     `json:"hooks" help:"what the checker found"`
	Program   telemetry.Program `json:"program" help:"what the NIC says"`
}

type loadFlags struct {
	deviceFlags
	keys          string
	allowUnsigned bool
}

func (x *commands) load() *cobra.Command {
	var f loadFlags
	c := &cobra.Command{
		Use:   "load IMAGE",
		Short: "Put a control program into a NIC and start it",
		Long: `Put an image into a NIC: an ELF file ('trapeze fw build'), a manifest of a vendor's
image (NAME.toml), or 'image:NAME', which comes with trapeze:
` + imageHelp() + `
Nothing is written before the image has been checked: that its programs are safe to
run, that it is signed with a key of the key ring, that it is for this NIC, and that
it fits. Then it goes into the slot that is not in use, is read back and compared,
and takes over; frames that arrive meanwhile wait. If anything fails, or Ctrl-C
comes, what ran before runs again. 'trapeze fw rollback' goes back later.

An image that is not signed, or whose key is not in the key ring or revoked, is
refused, unless --allow-unsigned is given or the NIC is emulated: an 'emu:' or a
'vfio-user:' address.

` + resetHelp + ` An
'emu:' NIC is made for this command and gone with it: load into one that 'trapeze
emulate' serves, or let 'trapeze demo --image' show it.

` + keys.Of(loaded{}),
		Example: `  trapeze load --device vfio-user:/run/nic0 image:amp
  trapeze load --device pci:0000:03:00.0 --keys /etc/trapeze/keys acl.img
  trapeze load --device pci:0000:03:00.0 --allow-unsigned count.img`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := x.loadInto(c.Context(), &f, args[0])
			if err != nil {
				return err
			}
			return x.Print(r, r.print)
		},
	}
	f.register(c)
	keysFlag(c, &f.keys)
	c.Flags().BoolVar(&f.allowUnsigned, "allow-unsigned", false, "load an image that is not signed, or by a key that is not trusted")
	return c
}

// loadInto does all that load does but print.
func (x *commands) loadInto(ctx context.Context, f *loadFlags, arg string) (r loaded, err error) {
	scheme, err := x.addressed(&f.deviceFlags)
	if err != nil {
		return r, err
	}
	img, err := Open(arg)
	if err != nil {
		return r, err
	}
	if err := img.Check(); err != nil {
		return r, err
	}
	dir, asked := keyRing(f.keys)
	if r.Signature, err = img.trust(dir, asked, f.allowUnsigned || trusting[scheme]); err != nil {
		return r, err
	}
	r.Image, r.Digest, r.Hooks = arg, img.digest(), []checkedHook{}
	r.Name, r.Version = img.title()
	if img.spec != nil {
		r.Hooks, _ = verdicts(img.spec)
	}
	var ready load.Image
	look := func(dev vfio.Device) error {
		r.Backend = dev.Info().Backend
		// What an address says is not what opens it.
		if _, err := img.trust(dir, asked, f.allowUnsigned || trusting[r.Backend]); err != nil {
			return err
		}
		id, err := identity(dev)
		if err != nil {
			return &command.DeviceError{Err: err}
		}
		ready, err = img.For(id)
		return err
	}
	err = x.with(ctx, &f.deviceFlags, look, func(ctx context.Context, nic *driver.NIC) error {
		r.Device = nic.Address()
		for _, s := range ready.Segments {
			r.Bytes += len(s.Bytes)
		}
		o, stop := x.follow(f.loadOptions(), r.Name)
		s, err := nic.LoadProgram(ctx, ready, o)
		stop()
		r.Program = s.Describe()
		return err
	})
	return r, err
}

// follow has a load show its progress until stop is called.
func (x *commands) follow(o load.Options, name string) (_ load.Options, stop func()) {
	var meter *progress.Meter
	seen := 0
	o.Progress = func(done, total int) {
		if meter == nil {
			meter = x.Meter("loading "+name, int64(total))
		}
		meter.Add(done - seen)
		seen = done
	}
	return o, func() {
		if meter != nil {
			meter.Stop()
		}
	}
}

func (r *loaded) print(w io.Writer) error {
	if err := table(w, row("device", fmt.Sprintf("%s (%s)", r.Device, r.Backend)), row("image", r.Name+" "+r.Version),
		row("digest", r.Digest), row("signature", r.Signature), row("bytes", r.Bytes), row("slot", telemetry.SlotName(r.Program.Slot)),
		row("previous", telemetry.SlotName(r.Program.Previous))); err != nil {
		return err
	}
	if len(r.Hooks) == 0 {
		return nil
	}
	return table(w, append([]string{""}, hookLines(r.Hooks)...)...)
}
