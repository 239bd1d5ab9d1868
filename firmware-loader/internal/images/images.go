// Package images holds the control programs that the project ships: their sources in C, and the objects that
// clang makes of them (go generate). README.md has a page on each.
package images

import (
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
)

//go:generate sh -c "./compile c/*.c ../../testdata/*.c"
//go:embed c/*.o
var objects embed.FS

// ErrUnknown is wrapped by the error about an image that there is not.
var ErrUnknown = errors.New("no such image")

// Image describes an image that the project ships.
type Image struct{ Name, Summary string }

var catalogue = []Image{
	{"store-and-forward", "a frame moves on when all of it has arrived"},
	{"cut-through", "fixed pulses of MINPULSE bytes as soon as that much has arrived"},
	{"amp", "adaptive message pipelining: all that has arrived, from MINPULSE bytes on"},
	{"ipt", "incoming payload table: the payload of a message goes to the entry that its immediate data names"},
	{"flow-steer", "spreads TCP and UDP flows over receive queues by the Toeplitz hash"},
	{"acl", "drops frames by addresses, ports and protocol, by rules that the host writes"},
	{"count", "counts frames and bytes of each flow for the host to read"},
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

// Object returns the ELF file that clang made. The error wraps ErrUnknown.
func Object(name string) ([]byte, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("%w: %q (%s)", ErrUnknown, name, strings.Join(Names(), ", "))
	}
	return objects.ReadFile("c/" + name + ".o")
}
