package engine

import (
	"unsafe"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Offsets in an admin command of the fields that can be refused, in bytes.
const (
	fieldOpcode  = uint16(unsafe.Offsetof(datasheet.Command{}.Opcode))
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

	fieldSendIOVA    = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.SendIOVA))
	fieldRecvIOVA    = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.RecvIOVA))
	fieldVIPtag      = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.Ptag))
	fieldMaxTransfer = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.MaxTransfer))
	fieldSendCQ      = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.SendCQ))
	fieldRecvCQ      = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.RecvCQ))
	fieldSendVector  = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.SendVector))
	fieldRecvVector  = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.RecvVector))
	fieldKind        = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.Kind))
	fieldReliability = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.Reliability))
	fieldSendLog2    = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.SendLog2))
	fieldRecvLog2    = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.RecvLog2))
	fieldOptions     = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.Options))
	fieldRights      = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.Rights))

	fieldEndpoint = fieldPayload + uint16(unsafe.Offsetof(datasheet.EndpointBody{}.Endpoint))

	fieldWaitTimeout = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectWaitBody{}.TimeoutMS))
	fieldWaitLocal   = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectWaitBody{}.Local))

	fieldAcceptConnection = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectAcceptBody{}.Connection))
	fieldAcceptEndpoint   = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectAcceptBody{}.Endpoint))
	fieldAcceptTimeout    = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectAcceptBody{}.TimeoutMS))

	fieldRequestTimeout = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectRequestBody{}.TimeoutMS))
	fieldRequestMAC     = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectRequestBody{}.RemoteMAC))
	fieldRequestRemote  = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectRequestBody{}.Remote))
	fieldRequestLocal   = fieldPayload + uint16(unsafe.Offsetof(datasheet.ConnectRequestBody{}.Local))

	fieldTableEndpoint = fieldPayload + uint16(unsafe.Offsetof(datasheet.SetPayloadBody{}.Endpoint))
	fieldTableEntry    = fieldPayload + uint16(unsafe.Offsetof(datasheet.SetPayloadBody{}.Entry))
	fieldTableHandle   = fieldPayload + uint16(unsafe.Offsetof(datasheet.SetPayloadBody{}.Handle))
	fieldTableLength   = fieldPayload + uint16(unsafe.Offsetof(datasheet.SetPayloadBody{}.Length))

	fieldTableTag = fieldPayload + uint16(unsafe.Offsetof(datasheet.SetPayloadBody{}.Tag))

	fieldAbortID = fieldPayload + uint16(unsafe.Offsetof(datasheet.AbortBody{}.ID))
)
