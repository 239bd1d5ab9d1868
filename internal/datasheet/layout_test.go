package datasheet_test

import (
	"reflect"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// layouts holds one value of every struct that another party reads or writes.
// TestSpec keeps it complete, and compares them with SPEC.md.
var layouts = byName(
	ControlSegment{}, AddressSegment{}, DataSegment{}, Token{}, Completion{}, Command{}, AdminEntry{}, Discriminator{},
	PtagBody{}, RegisterMemoryBody{}, MemoryBody{}, RegionReply{}, CreateCQBody{}, CQBody{}, CreateEndpointBody{},
	EndpointBody{}, EndpointCreated{}, EndpointReply{}, ConnectWaitBody{}, ConnectionReply{}, ConnectAcceptBody{},
	ConnectRejectBody{}, ConnectRequestBody{}, ConnectedReply{}, AbortBody{}, SetPayloadBody{}, ModifyEndpointBody{},
	ModifyMemoryBody{}, ResizeCQBody{}, ResizeCQReply{}, Event{}, RingSlot{}, RingPlace{}, ChannelControl{}, Cell{}, Header{},
	ConnectBody{}, Reference{}, Extension{}, DirectRegion{}, Progress{}, DMARecord{}, ImageHeader{}, ImageHook{}, ImageMap{},
)

func byName(values ...any) map[string]any {
	m := map[string]any{}
	for _, v := range values {
		m[reflect.TypeOf(v).Name()] = v
	}
	return m
}

// reflectFields are the fields of a layout, the marker structs.HostLayout left out.
func reflectFields(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if f := t.Field(i); f.Type.Size() > 0 && !yield(f) {
				return
			}
		}
	}
}

// TestLayoutsHaveNoHiddenPadding checks that every byte of a layout belongs to
// a declared field: compilers of other languages need not pad as Go does.
func TestLayoutsHaveNoHiddenPadding(t *testing.T) {
	for name, v := range layouts {
		typ := reflect.TypeOf(v)
		var end uintptr
		for f := range reflectFields(typ) {
			should.Be(t, f.Offset, end, "%s: %d undeclared bytes before %s", name, f.Offset-end, f.Name)
			end = f.Offset + f.Type.Size()
		}
		if end != typ.Size() {
			t.Errorf("%s: %d undeclared bytes at the end", name, typ.Size()-end)
		}
	}
}

// TestBodiesFit checks that bodies fit into the entries that carry them: Body
// and Reply overlay them without a check at run time.
func TestBodiesFit(t *testing.T) {
	src := packageSource(t)
	for _, role := range []struct {
		bodies []string
		room   uintptr
	}{{src.bodies, reflect.TypeOf(Command{}.Payload).Size()}, {src.replies, reflect.TypeOf(AdminEntry{}.Payload).Size()}} {
		for _, name := range role.bodies {
			if typ := reflect.TypeOf(layouts[name]); typ.Size() > role.room || typ.Align() > 8 {
				t.Errorf("%s takes %d bytes, aligned to %d; there is room for %d, aligned to 8", name, typ.Size(), typ.Align(), role.room)
			}
		}
		if len(role.bodies) < 9 {
			t.Errorf("there are only the bodies %q", role.bodies)
		}
	}
}
