package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	generated "math/rand/v2"
	"os"
	"time"

	xdr "github.com/stellar/go-xdr/xdr3"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/examples/nfspage/nfs"
	"github.com/trapeze-nic/trapeze/via"
)

// server answers the READ requests of one channel for one file.
type server struct {
	channel *channel.Channel
	file    *os.File
	handle  []byte // of the file
	parts   nfs.Parts
	sum     hash.Hash // of all replies that had data, as NFS has them
	around  uint64    // bytes that were sent besides data
}

func newServer(c *channel.Channel, file *os.File) *server {
	s := &server{channel: c, file: file, handle: make([]byte, 32), sum: sha256.New()}
	_, _ = rand.Read(s.handle) // never fails
	return s
}

// serve answers until the reader closes its channel. It closes the server's.
func (s *server) serve(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.channel.Close()) }()
	for {
		m, err := s.channel.Wait(ctx)
		if errors.Is(err, via.ErrDisconnected) {
			return nil
		}
		if err == nil {
			err = m.Err
		}
		var call readCall
		if err == nil {
			call, err = s.request(m)
		}
		if err == nil {
			err = s.channel.Release(m)
		}
		if err == nil {
			err = s.answer(ctx, &call)
		}
		if err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
}

// request reads a request where it has landed.
func (s *server) request(m channel.PDU) (call readCall, err error) {
	first, rest, err := s.channel.View(m)
	if err != nil {
		return call, err
	}
	from := io.MultiReader(bytes.NewReader(first), bytes.NewReader(rest))
	if _, err := io.CopyN(io.Discard, from, headersSize); err != nil {
		return call, err
	}
	// Within a request nothing is longer than a credential.
	_, err = xdr.UnmarshalWithOptions(from, &call, xdr.DecodeOptions{MaxInputLen: m.Length})
	return call, err
}

// answer sends the reply to a request. The file is read into page 1 of the sending pages, and the
// reply's beginning is put before it: so the reply is whole there, as NFS has it, and its data lie
// where the channel sends them from. Re-ordering moves only what is around them.
func (s *server) answer(ctx context.Context, call *readCall) error {
	if err := s.channel.Flush(ctx); err != nil { // the last reply may still be read from the pages
		return err
	}
	pages := s.channel.SendPages()
	page := pages.Page(1)
	n, end, status := s.fill(page, call)
	head := replyHead{XID: call.XID, MessageType: rpcReply, Status: status}
	if status != statusOK {
		p, err := packet(false, 0, head)
		if err != nil {
			return err
		}
		s.around += uint64(len(p))
		return s.channel.Send(channel.High, 0, pages.Put(0, p))
	}
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	head.Attributes = attributesOf(info)
	before, err := packet(false, n, head, readResult{uint32(n), end, uint32(n)})
	if err != nil {
		return err
	}
	start := len(page) - len(before)
	copy(pages.Bytes()[start:], before)
	reply := pages.Bytes()[start : len(page)+(n+3)&^3]
	s.sum.Write(reply)
	if err := nfs.Reorder(nfs.ReadReply, reply, &s.parts); err != nil {
		return err
	}
	if n > 0 && &s.parts.Data[0] != &page[0] {
		return errors.New("the data are not where they are sent from")
	}
	s.around += uint64(len(s.parts.Fixed) + len(s.parts.Attributes))
	return s.channel.SendPlaced(channel.Low, s.parts.Fixed, s.parts.Attributes)
}

// fill reads what a request asks for into a page, and zeros behind it.
func (s *server) fill(page []byte, call *readCall) (n int, end bool, status uint32) {
	switch {
	case call.MessageType != rpcCall || call.RPCVersion != rpcVersion || call.Program != nfsProgram || call.Version != nfsVersion || call.Procedure != nfsRead:
		return 0, false, statusNoCall
	case !bytes.Equal(call.File, s.handle):
		return 0, false, statusStale
	}
	n, err := s.file.ReadAt(page[:min(int(call.Count), len(page))], int64(call.Offset))
	if err != nil && err != io.EOF {
		return 0, false, statusIO
	}
	clear(page[n:])
	return n, err == io.EOF, statusOK
}

// attributesOf returns NFS's attributes of a regular file.
func attributesOf(info os.FileInfo) *attributes {
	when := func(t time.Time) [2]uint32 { return [2]uint32{uint32(t.Unix()), uint32(t.Nanosecond())} }
	return &attributes{Type: 1, Mode: uint32(info.Mode().Perm()), Links: 1, Size: uint64(info.Size()), Used: uint64(info.Size()),
		FileID: 1, Access: when(info.ModTime()), Modify: when(info.ModTime()), Change: when(info.ModTime())}
}

// open opens the file of that name, or generates one, whose last page is short.
func open(args []string) (*os.File, error) {
	if len(args) > 1 {
		return nil, errors.New("one file at most; see --help")
	}
	if len(args) == 1 {
		return os.Open(args[0])
	}
	f, err := os.CreateTemp("", "nfspage")
	if err != nil {
		return nil, err
	}
	_, err = io.CopyN(f, generated.NewChaCha8([32]byte{}), 1<<20+1234)
	if err = errors.Join(err, os.Remove(f.Name())); err != nil { // it is there as long as it is open
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
