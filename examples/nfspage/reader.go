package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"time"

	xdr "github.com/stellar/go-xdr/xdr3"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/examples/nfspage/nfs"
)

// reader reads a file over a channel, page by page.
type reader struct {
	channel *channel.Channel
	handle  []byte // of the file
	xid     uint32 // of the last request
	replies int
	reply   []byte    // the last one as NFS has it
	sum     hash.Hash // of all of them
	around  uint64    // bytes of requests
}

func newReader(c *channel.Channel, handle []byte) *reader {
	return &reader{channel: c, handle: handle, sum: sha256.New()}
}

// answerTime is the time that the server may take.
const answerTime = 10 * time.Second

// read asks for the page at an offset and returns it where it has landed, which holds until the
// next call, and whether the file ends there.
func (r *reader) read(ctx context.Context, offset uint64) (data []byte, end bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := ctx.Err(); err != nil { // pages that come at once are not waited for
		return nil, false, err
	}
	fixed := nfs.ReadReply.FixedSize()
	if err := r.channel.AllowPlaced(fixed); err != nil {
		return nil, false, err
	}
	if err := r.ask(offset); err != nil {
		return nil, false, err
	}
	m, err := r.channel.Wait(ctx)
	if err == nil {
		err = m.Err
	}
	if err != nil {
		return nil, false, fmt.Errorf("READ at %d: %w", offset, err)
	}
	head, page, trailer, err := r.channel.Placed(m, fixed)
	if errors.Is(err, channel.ErrLength) {
		return nil, false, r.refused(m, offset)
	}
	if err != nil {
		return nil, false, err
	}
	n, varying, err := nfs.Lengths(nfs.ReadReply, head)
	if err != nil {
		return nil, false, err
	}
	if n > len(page) || varying > len(trailer) {
		return nil, false, fmt.Errorf("READ at %d: the reply says that it has %d bytes of data and %d of attributes", offset, n, varying)
	}
	data = page[:n]
	if end, err = r.check(&nfs.Parts{Fixed: head, Data: data, Attributes: trailer[:varying]}); err != nil {
		return nil, false, fmt.Errorf("READ at %d: %w", offset, err)
	}
	if n == 0 && !end {
		return nil, false, fmt.Errorf("READ at %d: no data, and no end", offset)
	}
	return data, end, nil
}

// ask sends a request for a page.
func (r *reader) ask(offset uint64) error {
	r.xid++
	pages := r.channel.SendPages()
	p, err := packet(true, 0, readCall{XID: r.xid, MessageType: rpcCall, RPCVersion: rpcVersion, Program: nfsProgram, Version: nfsVersion,
		Procedure: nfsRead, File: r.handle, Offset: offset, Count: uint32(pages.PageSize())})
	if err != nil {
		return err
	}
	r.around += uint64(len(p))
	return r.channel.Send(channel.High, 0, pages.Put(0, p))
}

// check makes the reply whole again and reads it without channels.
func (r *reader) check(parts *nfs.Parts) (end bool, err error) {
	if r.reply, err = nfs.Restore(nfs.ReadReply, parts, r.reply[:0]); err != nil {
		return false, err
	}
	r.replies++
	r.sum.Write(r.reply)
	var head replyHead
	var result readResult
	from := bytes.NewReader(r.reply[headersSize:])
	if _, err := xdr.Unmarshal(from, &head); err != nil {
		return false, err
	}
	if _, err := xdr.Unmarshal(from, &result); err != nil {
		return false, err
	}
	if head.XID != r.xid {
		return false, fmt.Errorf("a reply to request %d, not %d", head.XID, r.xid)
	}
	return result.EOF, nil
}

// refused says why the server has sent a reply without data, which comes as it is.
func (r *reader) refused(m channel.PDU, offset uint64) error {
	first, rest, err := r.channel.View(m)
	if err != nil {
		return err
	}
	reply := bytes.Join([][]byte{first, rest}, nil)
	var head replyHead
	if len(reply) < headersSize {
		return fmt.Errorf("READ at %d: a reply of %d bytes", offset, len(reply))
	}
	if _, err := xdr.Unmarshal(bytes.NewReader(reply[headersSize:]), &head); err != nil {
		return fmt.Errorf("READ at %d: %w", offset, err)
	}
	return fmt.Errorf("READ at %d: the server says NFS status %d", offset, head.Status)
}
