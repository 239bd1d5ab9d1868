package nfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log"

	"github.com/trapeze-nic/trapeze/examples/nfspage/nfs"
)

// request is a packet with a call of WRITE, as it comes from a network: credentials of no bytes, a
// file handle of 8, and data.
func request(data string) []byte {
	be := binary.BigEndian
	var m []byte
	for _, w := range []uint32{1, 0, 2, 100003, 3, 7, 0, 0, 0, 0, 8} { // xid to the length of the handle
		m = be.AppendUint32(m, w)
	}
	m = append(m, "a handle"...)
	for _, w := range []uint32{0, 0, uint32(len(data)), 2, uint32(len(data))} { // offset, count, stable, length
		m = be.AppendUint32(m, w)
	}
	m = append(m, data...)
	m = append(m, make([]byte, -len(data)&3)...)
	p := be.AppendUint16([]byte{0x45, 0}, uint16(28+len(m)))
	p = append(p, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 3, 0xff, 8, 1)
	return append(append(be.AppendUint16(p, uint16(8+len(m))), 0, 0), m...)
}

// A packet goes in three parts, the first of which always is as long, and comes out as it went in.
func ExampleReorder() {
	packet := request("all that is written")
	var p nfs.Parts
	if err := nfs.Reorder(nfs.WriteRequest, packet, &p); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d bytes, then %q, then %q\n", len(p.Fixed), p.Data, p.Attributes)
	back, err := nfs.Restore(nfs.WriteRequest, &p, nil)
	fmt.Println("restored:", bytes.Equal(back, packet), err)
	// Output:
	// 96 bytes, then "all that is written", then "a handle\x00"
	// restored: true <nil>
}

// What carries no data to place is sent as it is.
func ExampleError() {
	err := nfs.Reorder(nfs.ReadReply, request("data"), new(nfs.Parts))
	fmt.Println(errors.Is(err, nfs.ErrOther), err)
	// Output: true NFS packet: message type 0: not a packet to re-order
}
