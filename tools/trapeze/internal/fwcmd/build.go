package fwcmd

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/outfile"
)

// built is the JSON output of build.
type built struct {
	File    string `json:"file"`
	Name    string `json:"name"`
	Version string `json:"version"`
	BuildID string `json:"build_id"`
	Digest  string `json:"digest"`
	Bytes   int    `json:"bytes"`
	SRAM    uint32 `json:"sram_bytes"`
}

type buildFlags struct {
	From    string `flag:"from" excludes:"image" help:"object file from 'clang -O2 -g -target bpf -c'"`
	Image   string `flag:"image" help:"instead of --from: the name of an image that comes with trapeze"`
	Output  string `flag:"output,o" required:"the file to write" help:"file to write"`
	Name    string `flag:"name" help:"name, 1 to {name-length} letters, digits and ._-+"`
	Version string `flag:"version" help:"version, 1 to {version-length} of the same"`
	BuildID string `flag:"build-id" help:"build ID, up to {id-digits} hexadecimal digits"`
	For     string `flag:"for" help:"NICs that it is for, as \"vendor:device\", four hexadecimal digits each (default: the object's, or any)"`
	cmdtable.Force
}

func (x *commands) build(_ context.Context, f *buildFlags, _ []string) error {
	meta, err := f.meta()
	if err != nil {
		return err
	}
	if err := outfile.Check(f.Output, f.Force.Force); err != nil {
		return outfile.Explain("--output", err)
	}
	spec, err := source(f.From, f.Image, meta)
	if err != nil {
		return err
	}
	for _, v := range spec.Check() {
		if v.Err != nil {
			return v.Err
		}
	}
	b := spec.Bytes()
	if err := outfile.Write(f.Output, 0o644, f.Force.Force, b); err != nil {
		return outfile.Explain("--output", err)
	}
	r := built{File: f.Output, Name: spec.Name, Version: spec.Version, BuildID: fmt.Sprintf("%x", spec.BuildID),
		Digest: fmt.Sprintf("%x", spec.Digest), Bytes: len(b), SRAM: spec.SRAM}
	return x.Report(r)
}

// source makes the image of a file, or one of ours.
func source(from, shipped string, meta firmware.Meta) (*firmware.Spec, error) {
	switch {
	case shipped != "":
		s, err := firmware.BuildShipped(shipped)
		if errors.Is(err, firmware.ErrNotShipped) {
			return nil, &option.Error{Option: "--image", Value: shipped, Allowed: strings.Join(firmware.ShippedNames(), ", ")}
		}
		if err != nil {
			return nil, err
		}
		return firmware.Build(s.Bytes(), meta)
	case from != "":
		object, err := firmware.ReadObject(from)
		if err != nil {
			return nil, err
		}
		s, err := firmware.Build(object, meta)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		return s, nil
	}
	return nil, &option.Error{Option: "--from", Value: "", Allowed: "an object file, or --image with the name of an image"}
}

// meta returns the image's note as the flags have it.
func (f *buildFlags) meta() (firmware.Meta, error) {
	m := firmware.Meta{Name: f.Name, Version: f.Version}
	id, err := hex.DecodeString(f.BuildID)
	if err != nil || len(id) > len(m.BuildID) {
		return m, &option.Error{Option: "--build-id", Value: f.BuildID, Allowed: fmt.Sprintf("an even number of hexadecimal digits, up to %d", 2*len(m.BuildID))}
	}
	copy(m.BuildID[:], id)
	if f.For == "" {
		return m, nil
	}
	if m.Device, err = parseDevice(f.For); err != nil {
		return m, &option.Error{Option: "--for", Value: f.For, Allowed: err.Error()}
	}
	return m, nil
}
