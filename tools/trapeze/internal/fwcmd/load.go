package fwcmd

import (
	"context"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/progress"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/vfio"
)

// loaded is the JSON output of load.
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
	ringFlags
	AllowUnsigned bool `flag:"allow-unsigned" help:"load an image that is not signed, or by a key that is not trusted"`
}

func (x *commands) load(ctx context.Context, f *loadFlags, args []string) error {
	r, err := x.loadInto(ctx, f, args[0])
	if err != nil {
		return err
	}
	return x.Report(r)
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
	dir, asked := f.ring()
	if r.Signature, err = img.trust(dir, asked, f.AllowUnsigned || trusting[scheme]); err != nil {
		return r, err
	}
	r.Image, r.Digest = arg, img.digest()
	r.Name, r.Version = img.spec.Name, img.spec.Version
	r.Hooks, _ = verdicts(img.spec)
	var ready load.Image
	look := func(dev vfio.Device) error {
		r.Backend = dev.Info().Backend
		// What an address says is not what opens it.
		if _, err := img.trust(dir, asked, f.AllowUnsigned || trusting[r.Backend]); err != nil {
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
		r.Bytes = len(ready.Bytes)
		o, stop := x.follow(f.loadOptions(), r.Name)
		s, err := nic.LoadProgram(ctx, ready, o)
		stop()
		r.Program = s.Describe()
		return err
	})
	return r, err
}

// follow makes a load show its progress until stop is called.
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
