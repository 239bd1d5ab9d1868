// Package images holds the control programs that the project ships. They are
// written with an assembler, so that nobody needs clang to have them; the folder c
// has the same programs in C, to learn from and to change. README.md has a page on
// each.
//
// Begin with [Build], which has an example; [Catalogue] says what there is.
package images

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/abi"
	"github.com/trapeze-nic/trapeze/internal/firmware-loader/flat"
)

// ErrUnknown is wrapped by the error about an image that there is not.
var ErrUnknown = errors.New("no such image")

// Image describes an image that can be built.
type Image struct {
	Name, Version string
	Summary       string
	programs      func() [abi.Hooks]asm.Instructions
	maps          func() []abi.Map
}

var catalogue = []Image{
	{"store-and-forward", "1.0", "a frame moves on when all of it has arrived", pulseHooks(storeAndForward), noMaps},
	{"cut-through", "1.0", "fixed pulses of MINPULSE bytes as soon as that much has arrived", pulseHooks(cutThrough), noMaps},
	{"amp", "1.0", "adaptive message pipelining: all that has arrived, from MINPULSE bytes on", pulseHooks(amp), noMaps},
	{"ipt", "1.0", "incoming payload table: the payload of a message goes to the entry that its immediate data names", demuxHook(payloadTable), iptMaps},
	{"flow-steer", "1.0", "spreads TCP and UDP flows over receive queues by the Toeplitz hash", demuxHook(flowSteer), steerMaps},
	{"acl", "1.0", "drops frames by addresses, ports and protocol, by rules that the host writes", filterHook(accessList), aclMaps},
	{"count", "1.0", "counts frames and bytes of each flow for the host to read", filterHook(countFlows), countMaps},
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

// Build makes an image. It is the same each time, down to the last byte, and not
// signed. The error wraps ErrUnknown.
func Build(name string) (*firmware.Spec, error) {
	for _, i := range catalogue {
		if i.Name == name {
			return firmware.Make(flat.Image{Name: i.Name, Version: i.Version, Programs: i.programs(), Maps: i.maps()})
		}
	}
	return nil, fmt.Errorf("%w: %q (%s)", ErrUnknown, name, strings.Join(Names(), ", "))
}

func noMaps() []abi.Map { return nil }

func pulseHooks(program func() asm.Instructions) func() [abi.Hooks]asm.Instructions {
	return func() (p [abi.Hooks]asm.Instructions) {
		p[abi.PulseTx], p[abi.PulseRx] = program(), program()
		return p
	}
}

func demuxHook(program func() asm.Instructions) func() [abi.Hooks]asm.Instructions {
	return func() (p [abi.Hooks]asm.Instructions) {
		p[abi.DemuxRx] = program()
		return p
	}
}

func filterHook(program func() asm.Instructions) func() [abi.Hooks]asm.Instructions {
	return func() (p [abi.Hooks]asm.Instructions) {
		p[abi.FilterRx] = program()
		return p
	}
}

// note puts a remark on an instruction, which the disassembly shows.
func note(ins asm.Instruction, text string) asm.Instruction {
	return ins.WithSource(asm.Comment(text))
}
