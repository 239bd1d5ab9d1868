package core

import (
	"unsafe"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Offsets in an admin command of the fields that can be refused, in bytes.
const (
	FieldOpcode  = uint16(unsafe.Offsetof(datasheet.Command{}.Opcode))
	fieldPayload = uint16(unsafe.Offsetof(datasheet.Command{}.Payload))

	fieldPtag = fieldPayload + uint16(unsafe.Offsetof(datasheet.PtagBody{}.Ptag))

	fieldRegionLength = fieldPayload + uint16(unsafe.Offsetof(datasheet.RegisterMemoryBody{}.Length))
	fieldRegionIOVA   = fieldPayload + uint16(unsafe.Offsetof(datasheet.RegisterMemoryBody{}.IOVA))
	fieldRegionPtag   = fieldPayload + uint16(unsafe.Offsetof(datasheet.RegisterMemoryBody{}.Ptag))
	fieldRegionAccess = fieldPayload + uint16(unsafe.Offsetof(datasheet.RegisterMemoryBody{}.Access))

	fieldHandle = fieldPayload + uint16(unsafe.Offsetof(datasheet.MemoryBody{}.Handle))

	fieldCQIOVA   = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateCQBody{}.IOVA))
	fieldCQIndex  = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateCQBody{}.IndexIOVA))
	fieldCQVector = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateCQBody{}.Vector))
	fieldCQLog2   = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateCQBody{}.Log2))

	fieldResizedCQ   = fieldPayload + uint16(unsafe.Offsetof(datasheet.ResizeCQBody{}.CQ))
	fieldResizedLog2 = fieldPayload + uint16(unsafe.Offsetof(datasheet.ResizeCQBody{}.Log2))

	fieldCQ = fieldPayload + uint16(unsafe.Offsetof(datasheet.CQBody{}.CQ))

	FieldSendIOVA    = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.SendIOVA))
	FieldRecvIOVA    = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.RecvIOVA))
	FieldVIPtag      = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.Ptag))
	FieldMaxTransfer = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.MaxTransfer))
	FieldSendCQ      = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.SendCQ))
	FieldRecvCQ      = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.RecvCQ))
	FieldSendVector  = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.SendVector))
	FieldRecvVector  = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.RecvVector))
	FieldKind        = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.Kind))
	FieldReliability = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.Reliability))
	FieldSendLog2    = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.SendLog2))
	FieldRecvLog2    = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.RecvLog2))
	FieldOptions     = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.Options))
	FieldRights      = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.Rights))

	FieldEndpoint = fieldPayload + uint16(unsafe.Offsetof(datasheet.EndpointBody{}.Endpoint))

	fieldWaitTimeout = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectWaitBody{}.TimeoutMS))
	fieldWaitLocal   = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectWaitBody{}.Local))

	fieldAcceptConnection = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectAcceptBody{}.Connection))
	fieldAcceptEndpoint   = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectAcceptBody{}.Endpoint))
	fieldAcceptTimeout    = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectAcceptBody{}.TimeoutMS))

	fieldRequestTimeout = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectRequestBody{}.TimeoutMS))
	fieldRequestMAC     = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectRequestBody{}.RemoteMAC))
	fieldRequestRemote  = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectRequestBody{}.Remote))
	fieldRequestLocal   = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectRequestBody{}.Local))

	FieldTableEndpoint = fieldPayload + uint16(unsafe.Offsetof(datasheet.SetPayloadBody{}.Endpoint))
	FieldTableEntry    = fieldPayload + uint16(unsafe.Offsetof(datasheet.SetPayloadBody{}.Entry))
	FieldTableHandle   = fieldPayload + uint16(unsafe.Offsetof(datasheet.SetPayloadBody{}.Handle))
	FieldTableLength   = fieldPayload + uint16(unsafe.Offsetof(datasheet.SetPayloadBody{}.Length))

	FieldTableTag = fieldPayload + uint16(unsafe.Offsetof(datasheet.SetPayloadBody{}.Tag))

	FieldAbortID = fieldPayload + uint16(unsafe.Offsetof(datasheet.AbortBody{}.ID))
)
