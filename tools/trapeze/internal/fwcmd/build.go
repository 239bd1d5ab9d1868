package fwcmd

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/opaque"
)

// built is what build --json prints.
type built struct {
	File    string `json:"file"`
	Name    string `json:"name"`
	Version string `json:"version"`
	BuildID string `json:"build_id"`
	Digest  string `json:"digest"`
	Bytes   int    `json:"bytes"`
	SRAM    uint32 `json:"sram_bytes"`
}

func (x *commands) build() *cobra.Command {
	var from, shipped, output, buildID, device string
	var meta firmware.Meta
	var force bool
	c := &cobra.Command{
		Use:   "build",
		Short: "Make an image of an object file, or one that comes with trapeze",
		Long: `Make an image of an object file from clang: fill in name, version, build ID, the
SRAM that it needs and the digest. The programs are checked first; an image that a
NIC would refuse is not written. A signature that the object has is dropped.

What is not given is taken from the object's note (firmware-loader/internal/images/c/trapeze.h
declares one). A build ID that is neither given nor there is made from the image.

Images that come with trapeze:
` + imageHelp() + `
` + keys.Of(built{}),
		Example: `  trapeze fw build --image amp --output amp.img
  clang -O2 -g -target bpf -c count.c -o count.o
  trapeze fw build --from count.o --name count --version 1.0 --output count.img`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := readMeta(&meta, buildID, device); err != nil {
				return err
			}
			if output == "" {
				return &option.Error{Option: "--output", Value: "", Allowed: "the file to write"}
			}
			if err := outfile.Check(output, force); err != nil {
				return outfile.Explain("--output", err)
			}
			spec, err := source(from, shipped, meta)
			if err != nil {
				return err
			}
			for _, v := range spec.Check() {
				if v.Err != nil {
					return v.Err
				}
			}
			b := spec.Bytes()
			if err := outfile.Write(output, 0o644, force, b); err != nil {
				return outfile.Explain("--output", err)
			}
			r := built{File: output, Name: spec.Name, Version: spec.Version, BuildID: fmt.Sprintf("%x", spec.BuildID),
				Digest: fmt.Sprintf("%x", spec.Digest), Bytes: len(b), SRAM: spec.SRAM}
			return x.Printf(r, "%s: %s %s, %d bytes, needs %d bytes of SRAM, digest %s\n", r.File, r.Name, r.Version, r.Bytes, r.SRAM, r.Digest)
		},
	}
	f := c.Flags()
	f.StringVar(&from, "from", "", "object file from 'clang -O2 -g -target bpf -c'")
	f.StringVar(&shipped, "image", "", "instead of --from: the name of an image that comes with trapeze")
	c.MarkFlagsMutuallyExclusive("from", "image")
	f.StringVarP(&output, "output", "o", "", "file to write")
	command.ForceFlag(c, &force)
	f.StringVar(&meta.Name, "name", "", fmt.Sprintf("name, 1 to %d letters, digits and ._-+", abi.MaxNameLength))
	f.StringVar(&meta.Version, "version", "", fmt.Sprintf("version, 1 to %d of the same", abi.MaxVersionLength))
	f.StringVar(&buildID, "build-id", "", fmt.Sprintf("build ID, up to %d hexadecimal digits", 2*abi.MaxBuildID))
	f.StringVar(&device, "for", "", `NICs that it is for, as "vendor:device", four hexadecimal digits each (default: the object's, or any)`)
	return c
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

// imageHelp lists the images that come with trapeze.
func imageHelp() string {
	var b strings.Builder
	for _, i := range firmware.ShippedImages() {
		fmt.Fprintf(&b, "  %-18s %s\n", i.Name, i.Summary)
	}
	return b.String()
}

// readMeta reads the flags that are not text.
func readMeta(m *firmware.Meta, buildID, device string) error {
	id, err := hex.DecodeString(buildID)
	if err != nil || len(id) > len(m.BuildID) {
		return &option.Error{Option: "--build-id", Value: buildID, Allowed: fmt.Sprintf("an even number of hexadecimal digits, up to %d", 2*len(m.BuildID))}
	}
	copy(m.BuildID[:], id)
	if device == "" {
		return nil
	}
	if m.Device, err = opaque.ParseDevice(device); err != nil {
		return &option.Error{Option: "--for", Value: device, Allowed: err.Error()}
	}
	return nil
}
