// Package images holds the control programs that the project ships. They are
// written with an assembler, so that they need no clang; the folder c
// has the same programs in C, to learn from and to change. README.md has a page on
// each.
package images

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// ErrUnknown is wrapped by the error about an image that there is not.
var ErrUnknown = errors.New("no such image")

// Image describes an image that can be built.
type Image struct {
	Name, Version string
	Summary       string
	hooks         []abi.Hook // all have the same program
	program       func() asm.Instructions
	maps          func() []abi.Map // nil = none
}

var pulses = []abi.Hook{abi.PulseTx, abi.PulseRx}

var catalogue = []Image{
	{"store-and-forward", "1.0", "a frame moves on when all of it has arrived", pulses, storeAndForward, nil},
	{"cut-through", "1.0", "fixed pulses of MINPULSE bytes as soon as that much has arrived", pulses, cutThrough, nil},
	{"amp", "1.0", "adaptive message pipelining: all that has arrived, from MINPULSE bytes on", pulses, amp, nil},
	{"ipt", "1.0", "incoming payload table: the payload of a message goes to the entry that its immediate data names", []abi.Hook{abi.DemuxRx}, payloadTable, iptMaps},
	{"flow-steer", "1.0", "spreads TCP and UDP flows over receive queues by the Toeplitz hash", []abi.Hook{abi.DemuxRx}, flowSteer, steerMaps},
	{"acl", "1.0", "drops frames by addresses, ports and protocol, by rules that the host writes", []abi.Hook{abi.FilterRx}, accessList, aclMaps},
	{"count", "1.0", "counts frames and bytes of each flow for the host to read", []abi.Hook{abi.FilterRx}, countFlows, countMaps},
}

// Names returns the names of the images.
func Names() []string {
	var names []string
	for _, i := range catalogue {
		names = append(names, i.Name)
	}
	return names
}

// Catalogue returns the images.
func Catalogue() []Image { return slices.Clone(catalogue) }

// Build makes an image. It is the same each time. The error wraps ErrUnknown.
func Build(name string) (flat.Image, error) {
	for _, i := range catalogue {
		if i.Name == name {
			img := flat.Image{Name: i.Name, Version: i.Version}
			for _, h := range i.hooks {
				img.Programs[h] = i.program()
			}
			if i.maps != nil {
				img.Maps = i.maps()
			}
			return img, nil
		}
	}
	return flat.Image{}, fmt.Errorf("%w: %q (%s)", ErrUnknown, name, strings.Join(Names(), ", "))
}

// note puts a remark on an instruction, which the disassembly shows.
func note(ins asm.Instruction, text string) asm.Instruction {
	return ins.WithSource(asm.Comment(text))
}
