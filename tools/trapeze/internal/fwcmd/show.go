package fwcmd

import (
	"context"
	"fmt"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// shown is the JSON output of show.
type shown struct {
	File      string             `json:"file"`
	Name      string             `json:"name"`
	Version   string             `json:"version"`
	BuildID   string             `json:"build_id"`
	ABI       string             `json:"abi"`
	Device    string             `json:"device"`
	Image     int                `json:"image_bytes" help:"of the flat image"`
	SRAM      uint32             `json:"sram_bytes"`
	Digest    string             `json:"digest"`
	Built     bool               `json:"built"`
	Signature signatureState     `json:"signature"`
	Sections  []firmware.Section `json:"sections"`
	Hooks     []checkedHook      `json:"hooks"`
	Maps      []shownMap         `json:"maps"`
}

type shownMap struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Key      uint32 `json:"key_bytes"`
	Value    uint32 `json:"value_bytes"`
	Entries  uint32 `json:"entries"`
	ReadOnly bool   `json:"read_only"`
	Storage  uint64 `json:"sram_bytes"`
}

func (x *commands) show(_ context.Context, f *ringFlags, args []string) error {
	img, err := Open(args[0])
	if err != nil {
		return err
	}
	s := shown{File: args[0], Digest: img.digest()}
	if err := s.ofSpec(img.spec); err != nil {
		return err
	}
	if s.Signature, _, err = img.state(f.ring()); err != nil {
		return err
	}
	return x.Report(&s)
}

func (s *shown) ofSpec(spec *firmware.Spec) error {
	s.Name, s.Version, s.Built = spec.Name, spec.Version, spec.Built
	s.BuildID, s.ABI = fmt.Sprintf("%x", spec.BuildID), fmt.Sprintf("%d.%d", spec.ABI>>16, spec.ABI&0xffff)
	s.Device = "any"
	if spec.Device != 0 {
		s.Device = deviceName(spec.Device)
	}
	s.Image, s.SRAM = len(spec.Link()), spec.SRAM
	s.Sections = spec.Sections()
	s.Hooks, _ = verdicts(spec)
	for _, m := range spec.Maps {
		shown, err := showMap(m)
		if err != nil {
			return err
		}
		s.Maps = append(s.Maps, shown)
	}
	return nil
}

func showMap(m abi.Map) (shownMap, error) {
	storage, err := firmware.StorageSize(m)
	return shownMap{Name: m.Name, Type: m.Type.String(), Key: m.Key, Value: m.Value, Entries: m.Entries,
		ReadOnly: m.Flags&abi.MapReadOnly != 0, Storage: storage}, err
}
