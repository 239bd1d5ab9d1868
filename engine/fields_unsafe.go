package engine

import (
	"unsafe"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// Offsets in an admin command of the fields that can be refused, in bytes.
const (
	fieldOpcode  = uint16(unsafe.Offsetof(descriptors.Command{}.Opcode))
	fieldPayload = uint16(unsafe.Offsetof(descriptors.Command{}.Payload))

	fieldPtag = fieldPayload + uint16(unsafe.Offsetof(descriptors.PtagBody{}.Ptag))

	fieldRegionLength = fieldPayload + uint16(unsafe.Offsetof(descriptors.RegisterMemoryBody{}.Length))
	fieldRegionIOVA   = fieldPayload + uint16(unsafe.Offsetof(descriptors.RegisterMemoryBody{}.IOVA))
	fieldRegionPtag   = fieldPayload + uint16(unsafe.Offsetof(descriptors.RegisterMemoryBody{}.Ptag))
	fieldRegionAccess = fieldPayload + uint16(unsafe.Offsetof(descriptors.RegisterMemoryBody{}.Access))

	fieldHandle = fieldPayload + uint16(unsafe.Offsetof(descriptors.MemoryBody{}.Handle))

	fieldCQIOVA   = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateCQBody{}.IOVA))
	fieldCQIndex  = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateCQBody{}.IndexIOVA))
	fieldCQVector = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateCQBody{}.Vector))
	fieldCQLog2   = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateCQBody{}.Log2))

	fieldResizedCQ   = fieldPayload + uint16(unsafe.Offsetof(descriptors.ResizeCQBody{}.CQ))
	fieldResizedLog2 = fieldPayload + uint16(unsafe.Offsetof(descriptors.ResizeCQBody{}.Log2))

	fieldCQ = fieldPayload + uint16(unsafe.Offsetof(descriptors.CQBody{}.CQ))

	fieldSendIOVA    = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.SendIOVA))
	fieldRecvIOVA    = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.RecvIOVA))
	fieldVIPtag      = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.Ptag))
	fieldMaxTransfer = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.MaxTransfer))
	fieldSendCQ      = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.SendCQ))
	fieldRecvCQ      = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.RecvCQ))
	fieldSendVector  = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.SendVector))
	fieldRecvVector  = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.RecvVector))
	fieldKind        = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.Kind))
	fieldReliability = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.Reliability))
	fieldSendLog2    = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.SendLog2))
	fieldRecvLog2    = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.RecvLog2))
	fieldOptions     = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.Options))
	fieldRights      = fieldPayload + uint16(unsafe.Offsetof(descriptors.CreateEndpointBody{}.Rights))

	fieldEndpoint = fieldPayload + uint16(unsafe.Offsetof(descriptors.EndpointBody{}.Endpoint))

	fieldWaitTimeout = fieldPayload + uint16(unsafe.Offsetof(descriptors.ConnectWaitBody{}.TimeoutMS))
	fieldWaitLocal   = fieldPayload + uint16(unsafe.Offsetof(descriptors.ConnectWaitBody{}.Local))

	fieldAcceptConnection = fieldPayload + uint16(unsafe.Offsetof(descriptors.ConnectAcceptBody{}.Connection))
	fieldAcceptEndpoint   = fieldPayload + uint16(unsafe.Offsetof(descriptors.ConnectAcceptBody{}.Endpoint))
	fieldAcceptTimeout    = fieldPayload + uint16(unsafe.Offsetof(descriptors.ConnectAcceptBody{}.TimeoutMS))

	fieldRequestTimeout = fieldPayload + uint16(unsafe.Offsetof(descriptors.ConnectRequestBody{}.TimeoutMS))
	fieldRequestMAC     = fieldPayload + uint16(unsafe.Offsetof(descriptors.ConnectRequestBody{}.RemoteMAC))
	fieldRequestRemote  = fieldPayload + uint16(unsafe.Offsetof(descriptors.ConnectRequestBody{}.Remote))
	fieldRequestLocal   = fieldPayload + uint16(unsafe.Offsetof(descriptors.ConnectRequestBody{}.Local))

	fieldTableEndpoint = fieldPayload + uint16(unsafe.Offsetof(descriptors.SetPayloadBody{}.Endpoint))
	fieldTableEntry    = fieldPayload + uint16(unsafe.Offsetof(descriptors.SetPayloadBody{}.Entry))
	fieldTableHandle   = fieldPayload + uint16(unsafe.Offsetof(descriptors.SetPayloadBody{}.Handle))
	fieldTableLength   = fieldPayload + uint16(unsafe.Offsetof(descriptors.SetPayloadBody{}.Length))

	fieldTableTag = fieldPayload + uint16(unsafe.Offsetof(descriptors.SetPayloadBody{}.Tag))

	fieldAbortID = fieldPayload + uint16(unsafe.Offsetof(descriptors.AbortBody{}.ID))
)
