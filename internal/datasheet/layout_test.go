package datasheet_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// layouts holds one value of every struct that another party reads or writes.
// TestLayoutsAreComplete keeps it complete.
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

// layoutOf lists the fields of a layout as "name offset size", the marker
// structs.HostLayout left out.
func layoutOf(t reflect.Type) []string {
	var fields []string
	for f := range reflectFields(t) {
		fields = append(fields, fmt.Sprintf("%s %d %d", f.Name, f.Offset, f.Type.Size()))
	}
	return fields
}

func reflectFields(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if f := t.Field(i); f.Type.Size() > 0 && !yield(f) {
				return
			}
		}
	}
}

func TestLayouts(t *testing.T) {
	tests := []struct {
		name   string
		size   uintptr
		fields []string
	}{
		{"ControlSegment", 32, []string{"Next 0 8", "NextHandle 8 4", "SegCount 12 2", "Control 14 2", "Front 16 4", "Immediate 20 4", "Length 24 4", "Status 28 4"}},
		{"AddressSegment", 16, []string{"Address 0 8", "Handle 8 4", "Reserved 12 4"}},
		{"DataSegment", 16, []string{"Address 0 8", "Handle 8 4", "Length 12 4"}},
		{"Token", 16, []string{"Address 0 8", "Handle 8 4", "Flags 12 4"}},
		{"Completion", 16, []string{"Endpoint 0 4", "Index 4 4", "Status 8 4", "Flags 12 4"}},
		{"Command", 128, []string{"Opcode 0 2", "ID 2 2", "_ 4 4", "Payload 8 120"}},
		{"AdminEntry", 128, []string{"Kind 0 2", "ID 2 2", "Result 4 2", "Field 6 2", "Payload 8 112", "_ 120 4", "Flags 124 4"}},
		{"Discriminator", 36, []string{"Len 0 1", "_ 1 3", "Data 4 32"}},
		{"PtagBody", 4, []string{"Ptag 0 4"}},
		{"RegisterMemoryBody", 32, []string{"Address 0 8", "Length 8 8", "IOVA 16 8", "Ptag 24 4", "Access 28 4"}},
		{"MemoryBody", 4, []string{"Handle 0 4"}},
		{"RegionReply", 16, []string{"Handle 0 4", "Blocks 4 4", "Status 8 4", "BlockLog2 12 1", "_ 13 3"}},
		{"CreateCQBody", 24, []string{"IOVA 0 8", "IndexIOVA 8 8", "Vector 16 2", "Log2 18 1", "_ 19 1", "_ 20 4"}},
		{"CQBody", 4, []string{"CQ 0 4"}},
		{"CreateEndpointBody", 48, []string{"SendIOVA 0 8", "RecvIOVA 8 8", "Ptag 16 4", "MaxTransfer 20 4", "SendCQ 24 4", "RecvCQ 28 4", "SendVector 32 2", "RecvVector 34 2", "Kind 36 1", "Reliability 37 1", "SendLog2 38 1", "RecvLog2 39 1", "Rights 40 4", "Options 44 4"}},
		{"EndpointBody", 4, []string{"Endpoint 0 4"}},
		{"EndpointCreated", 24, []string{"Endpoint 0 4", "Handle 4 4", "Send 8 4", "Recv 12 4", "Table 16 4", "_ 20 4"}},
		{"EndpointReply", 28, []string{"SendProducer 0 4", "SendCompleted 4 4", "RecvProducer 8 4", "RecvCompleted 12 4", "RemoteEndpoint 16 4", "State 20 1", "_ 21 1", "RemoteMAC 22 6"}},
		{"ConnectWaitBody", 40, []string{"TimeoutMS 0 4", "Local 4 36"}},
		{"ConnectionReply", 56, []string{"Connection 0 4", "MaxTransfer 4 4", "Reliability 8 1", "Kind 9 1", "RemoteMAC 10 6", "RemoteRights 16 4", "Remote 20 36"}},
		{"ConnectAcceptBody", 12, []string{"Connection 0 4", "Endpoint 4 4", "TimeoutMS 8 4"}},
		{"ConnectRejectBody", 4, []string{"Connection 0 4"}},
		{"ConnectRequestBody", 88, []string{"Endpoint 0 4", "TimeoutMS 4 4", "RemoteMAC 8 6", "_ 14 2", "Remote 16 36", "Local 52 36"}},
		{"ConnectedReply", 20, []string{"RemoteEndpoint 0 4", "MaxTransfer 4 4", "Reliability 8 1", "_ 9 1", "RemoteMAC 10 6", "RemoteRights 16 4"}},
		{"AbortBody", 2, []string{"ID 0 2"}},
		{"SetPayloadBody", 32, []string{"Address 0 8", "Endpoint 8 4", "Entry 12 4", "Handle 16 4", "Length 20 4", "Tag 24 4", "_ 28 4"}},
		{"ModifyEndpointBody", 48, []string{"Endpoint 0 4", "_ 4 12", "Ptag 16 4", "MaxTransfer 20 4", "_ 24 12", "_ 36 1", "Reliability 37 1", "_ 38 2", "Rights 40 4", "Options 44 4"}},
		{"ModifyMemoryBody", 32, []string{"Handle 0 4", "_ 4 20", "Ptag 24 4", "Access 28 4"}},
		{"ResizeCQBody", 24, []string{"IOVA 0 8", "IndexIOVA 8 8", "CQ 16 4", "Log2 20 1", "_ 21 1", "_ 22 2"}},
		{"ResizeCQReply", 4, []string{"Written 0 4"}},
		{"Event", 24, []string{"Code 0 4", "Endpoint 4 4", "CQ 8 4", "Detail 12 4", "Descriptor 16 8"}},
		{"RingSlot", 192, []string{"Message 0 128", "_ 128 12", "Segments 140 2", "Control 142 2", "Reserved 144 4", "Tag 148 4", "Length 152 4", "Status 156 4", "Payload 160 16", "Sent 176 4", "Place 180 4", "_ 184 8"}},
		{"RingPlace", 24, []string{"Address 0 8", "Handle 8 4", "Length 12 4", "Tag 16 4", "_ 20 4"}},
		{"ChannelControl", 64, []string{"Transmit 0 8", "Receive 8 8", "SendCRC 16 4", "RecvCRC 20 4", "SendStatus 24 8", "_ 32 32"}},
		{"Cell", 56, []string{"Header 0 4", "HEC 4 1", "Tag 5 3", "Payload 8 48"}},
		{"Header", 64, []string{"Destination 0 6", "Source 6 6", "EtherType 12 2", "Version 14 1", "Type 15 1", "Flags 16 2", "Length 18 2", "DestinationEndpoint 20 4", "SourceEndpoint 24 4", "Key 28 4", "PSN 32 4", "Ack 36 4", "Credit 40 4", "Message 44 4", "Extent 48 4", "Offset 52 4", "Immediate 56 4", "Checksum 60 4"}},
		{"ConnectBody", 96, []string{"Key 0 4", "MaxTransfer 4 4", "Rights 8 4", "TimeoutMS 12 4", "Reliability 16 1", "Kind 17 1", "Options 18 2", "Wire 20 4", "Remote 24 36", "Local 60 36"}},
		{"Reference", 16, []string{"Region 0 4", "Length 4 4", "Offset 8 8"}},
		{"Extension", 16, []string{"Address 0 8", "Handle 8 4", "Request 12 4"}},
		{"DirectRegion", 64, []string{"Handle 0 4", "Access 4 4", "Ptag 8 4", "Memory 12 4", "Address 16 8", "Length 24 8", "Offset 32 8", "Reserved 40 24"}},
		{"Progress", 64, []string{"Sequence 0 4", "Frame 4 4", "Length 8 4", "Arrived 12 4", "Sent 16 4", "Queued 20 4", "Flags 24 4", "_ 28 4", "_ 32 32"}},
		{"DMARecord", 32, []string{"Start 0 8", "End 8 8", "Packet 16 4", "Bytes 20 4", "Engine 24 4", "Flags 28 4"}},
		{"ImageHeader", 192, []string{"Magic 0 4", "ABI 4 4", "Size 8 4", "SRAM 12 4", "Device 16 4", "HookCount 20 2", "MapCount 22 2", "HooksOffset 24 4", "MapsOffset 28 4", "Name 32 32", "Version 64 16", "BuildID 80 20", "_ 100 4", "_ 104 8", "Digest 112 32", "_ 144 48"}},
		{"ImageHook", 16, []string{"Offset 0 4", "Instructions 4 4", "_ 8 8"}},
		{"ImageMap", 64, []string{"Name 0 32", "Type 32 4", "Key 36 4", "Value 40 4", "Entries 44 4", "Flags 48 4", "ContentsOffset 52 4", "ContentsSize 56 4", "Storage 60 4"}},
	}
	tested := map[string]bool{}
	for _, tt := range tests {
		tested[tt.name] = true
		t.Run(tt.name, func(t *testing.T) {
			typ := reflect.TypeOf(layouts[tt.name])
			should.Be(t, typ.Size(), tt.size, "size is bytes")
			should.Be(t, cmp.Diff(tt.fields, layoutOf(typ)), "", "fields (-want +got)")
		})
	}
	for name := range layouts {
		if !tested[name] {
			t.Errorf("layout %s has no row in this test", name)
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
