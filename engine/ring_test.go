package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// onAllWires runs f at all levels of reliability over all kinds of wires.
func onAllWires(t *testing.T, f func(t *testing.T, change func(*datasheet.CreateEndpointBody), options ...option)) {
	for name, wire := range map[string]func() []option{
		"plain":    func() []option { return nil },
		"exact":    func() []option { return []option{exactly(nil)} },
		"pieces":   func() []option { return []option{inParts(nil)} },
		"lending":  func() []option { return []option{lending(2560, new([2]*lender))} },
		"checksum": func() []option { return []option{lossy(1, 0, 0, 0, 0)} },
	} {
		t.Run(name, func(t *testing.T) {
			levels(t, func(t *testing.T, _ datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
				f(t, change, wire()...)
			})
		})
	}
}
