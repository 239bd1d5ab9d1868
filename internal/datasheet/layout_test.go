package datasheet_test

import (
	"reflect"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// layouts holds one value of every struct that another party reads or writes.
// TestSpec keeps it complete, and compares them with SPEC.md.
var layouts = map[string]any{
	"ControlSegment":     ControlSegment{},
	"AddressSegment":     AddressSegment{},
	"DataSegment":        DataSegment{},
	"Token":              Token{},
	"Completion":         Completion{},
	"Command":            Command{},
	"AdminEntry":         AdminEntry{},
	"Discriminator":      Discriminator{},
	"PtagBody":           PtagBody{},
	"RegisterMemoryBody": RegisterMemoryBody{},
	"MemoryBody":         MemoryBody{},
	"RegionReply":        RegionReply{},
	"CreateCQBody":       CreateCQBody{},
	"CQBody":             CQBody{},
	"CreateEndpointBody": CreateEndpointBody{},
	"EndpointBody":       EndpointBody{},
	"EndpointCreated":    EndpointCreated{},
	"EndpointReply":      EndpointReply{},
	"ConnectWaitBody":    ConnectWaitBody{},
	"ConnectionReply":    ConnectionReply{},
	"ConnectAcceptBody":  ConnectAcceptBody{},
	"ConnectRejectBody":  ConnectRejectBody{},
	"ConnectRequestBody": ConnectRequestBody{},
	"ConnectedReply":     ConnectedReply{},
	"AbortBody":          AbortBody{},
	"SetPayloadBody":     SetPayloadBody{},
	"ModifyEndpointBody": ModifyEndpointBody{},
	"ModifyMemoryBody":   ModifyMemoryBody{},
	"ResizeCQBody":       ResizeCQBody{},
	"ResizeCQReply":      ResizeCQReply{},
	"Event":              Event{},
	"RingSlot":           RingSlot{},
	"RingPlace":          RingPlace{},
	"ChannelControl":     ChannelControl{},
	"Cell":               Cell{},
	"Header":             Header{},
	"ConnectBody":        ConnectBody{},
	"Reference":          Reference{},
	"Extension":          Extension{},
	"DirectRegion":       DirectRegion{},
	"Progress":           Progress{},
	"DMARecord":          DMARecord{},
	"ImageHeader":        ImageHeader{},
	"ImageHook":          ImageHook{},
	"ImageMap":           ImageMap{},
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
	room := map[reflect.Type]uintptr{
		reflect.TypeFor[CommandBody](): reflect.TypeOf(Command{}.Payload).Size(),
		reflect.TypeFor[ReplyBody]():   reflect.TypeOf(AdminEntry{}.Payload).Size(),
	}
	for role, space := range room {
		n := 0
		for name, v := range layouts {
			typ := reflect.TypeOf(v)
			if !typ.Implements(role) {
				continue
			}
			n++
			if typ.Size() > space {
				t.Errorf("%s takes %d bytes, a %s has room for %d", name, typ.Size(), role.Name(), space)
			}
			if typ.Align() > 8 {
				t.Errorf("%s is aligned to %d bytes, payloads to 8", name, typ.Align())
			}
		}
		if n == 0 {
			t.Errorf("no layout is a %s", role.Name())
		}
	}
}

func TestSizeConstants(t *testing.T) {
	for _, tt := range []struct {
		constant int
		layout   string
	}{
		{ControlSegmentSize, "ControlSegment"},
		{AddressSegmentSize, "AddressSegment"},
		{DataSegmentSize, "DataSegment"},
		{TokenSize, "Token"},
		{CompletionSize, "Completion"},
		{AdminEntrySize, "Command"},
		{AdminEntrySize, "AdminEntry"},
		{RingSlotSize, "RingSlot"},
		{RingPlaceSize, "RingPlace"},
		{CellSize, "Cell"},
		{HeaderSize, "Header"},
		{ConnectBodySize, "ConnectBody"},
		{ReferenceSize, "Reference"},
		{ExtensionSize, "Extension"},
		{ProgressSize, "Progress"},
		{DMARecordSize, "DMARecord"},
		{ImageHeaderSize, "ImageHeader"},
		{ImageHookSize, "ImageHook"},
		{ImageMapSize, "ImageMap"},
	} {
		if got := reflect.TypeOf(layouts[tt.layout]).Size(); got != uintptr(tt.constant) {
			t.Errorf("%s takes %d bytes, its constant says %d", tt.layout, got, tt.constant)
		}
	}
}
