package fwcmd

import (
	"context"
	"fmt"
	"io"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/opaque"
)

// shown is the JSON output of show.
type shown struct {
	File      string             `json:"file"`
	Kind      string             `json:"kind" help:"program or opaque"`
	Name      string             `json:"name"`
	Version   string             `json:"version"`
	BuildID   string             `json:"build_id,omitempty" help:"of a program"`
	ABI       string             `json:"abi,omitempty" help:"of a program"`
	Device    string             `json:"device"`
	Image     int                `json:"image_bytes" help:"of the flat image, or of all segments"`
	SRAM      uint32             `json:"sram_bytes"`
	Digest    string             `json:"digest"`
	Built     bool               `json:"built"`
	Signature signatureState     `json:"signature"`
	Sections  []firmware.Section `json:"sections,omitempty" help:"of a program"`
	Hooks     []checkedHook      `json:"hooks,omitempty" help:"of a program"`
	Maps      []shownMap         `json:"maps,omitempty" help:"of a program"`
	Entry     uint32             `json:"entry,omitempty" help:"of an opaque image"`
	Ready     uint32             `json:"ready,omitempty" help:"of an opaque image"`
	Segments  []shownSegment     `json:"segments,omitempty" help:"of an opaque image"`
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

type shownSegment struct {
	File    string `json:"file"`
	Address uint32 `json:"address"`
	Bytes   int    `json:"bytes"`
	SHA256  string `json:"sha256"`
}

func (x *commands) show(_ context.Context, f *ringFlags, args []string) error {
	img, err := Open(args[0])
	if err != nil {
		return err
	}
	s := shown{File: args[0], Digest: img.digest()}
	if img.vendor != nil {
		s.ofVendor(img.vendor)
	} else if err := s.ofSpec(img.spec); err != nil {
		return err
	}
	if s.Signature, _, err = img.state(f.ring()); err != nil {
		return err
	}
	return x.Print(&s, s.print)
}

func (s *shown) ofSpec(spec *firmware.Spec) error {
	s.Kind, s.Name, s.Version, s.Built = "program", spec.Name, spec.Version, spec.Built
	s.BuildID, s.ABI = fmt.Sprintf("%x", spec.BuildID), fmt.Sprintf("%d.%d", spec.ABI>>16, spec.ABI&0xffff)
	s.Device = "any"
	if spec.Device != 0 {
		s.Device = opaque.DeviceName(spec.Device)
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

func (s *shown) ofVendor(img *opaque.Image) {
	s.Kind, s.Name, s.Version, s.Built = "opaque", img.Name, img.Version, true
	s.Device, s.SRAM, s.Entry, s.Ready = img.DeviceNames(), img.SRAM, img.Entry, img.Ready
	for _, seg := range img.Segments {
		s.Image += len(seg.Bytes)
		s.Segments = append(s.Segments, shownSegment{File: seg.File, Address: seg.Address, Bytes: len(seg.Bytes), SHA256: fmt.Sprintf("%x", seg.SHA256)})
	}
}

func (s *shown) print(w io.Writer) error {
	head := []string{row("name", s.Name), row("version", s.Version)}
	if s.Kind == "program" {
		head = append(head, row("build ID", s.BuildID), row("ABI", s.ABI))
	} else {
		head = append(head, row("entry", fmt.Sprintf("%#x", s.Entry)), row("ready", fmt.Sprintf("%#x", s.Ready)))
	}
	digest := s.Digest
	if !s.Built {
		digest += ", not in the file ('trapeze fw build' adds it)"
	}
	head = append(head, row("for", s.Device), row("image", fmt.Sprintf("%d bytes", s.Image)),
		row("SRAM", fmt.Sprintf("%d bytes", s.SRAM)), row("digest", digest), row("signature", s.Signature))
	if err := table(w, head...); err != nil {
		return err
	}
	for _, part := range [][]string{hookLines(s.Hooks), s.sectionLines(), s.mapLines(), s.segmentLines()} {
		if len(part) < 2 {
			continue
		}
		if err := table(w, append([]string{""}, part...)...); err != nil {
			return err
		}
	}
	return nil
}

func (s *shown) sectionLines() []string {
	lines := []string{row("SECTION", "BYTES", "ROLE")}
	for _, sec := range s.Sections {
		lines = append(lines, row(sec.Name, sec.Bytes, sec.Role))
	}
	return lines
}

func (s *shown) mapLines() []string {
	lines := []string{row("MAP", "TYPE", "KEY", "VALUE", "ENTRIES", "SRAM", "ACCESS")}
	for _, m := range s.Maps {
		access := "read-write"
		if m.ReadOnly {
			access = "read-only"
		}
		lines = append(lines, row(m.Name, m.Type, m.Key, m.Value, m.Entries, m.Storage, access))
	}
	return lines
}

func (s *shown) segmentLines() []string {
	lines := []string{row("SEGMENT", "ADDRESS", "BYTES", "SHA-256")}
	for _, seg := range s.Segments {
		lines = append(lines, row(fmt.Sprintf("%+q", seg.File), fmt.Sprintf("%#x", seg.Address), seg.Bytes, seg.SHA256))
	}
	return lines
}
