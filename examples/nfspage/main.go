// Nfspage reads a file by NFS version 3 over a pair of MINI's channels: READ requests go one way, replies the
// other. In a reply of NFS the attributes stand before the data, and their length varies. The server sends them
// behind the data: then what comes before is always as long, and the page of the file lands aligned to a page of
// the reader's memory, where the reader takes it without a copy. Both NICs are emulated, in this process; on
// hardware the addresses differ, no more.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	"github.com/trapeze-nic/trapeze/via"
)

// Messages of NFS version 3 as XDR has them, with a file handle of 8 bytes and without credentials (RFC 5531, 9;
// RFC 1813, 2.5 and 3.3.6).
type (
	request struct {
		XID, Type, RPCVersion, Program, Version, Procedure uint32
		Credentials, Verifier                              [2]uint32
		HandleLength                                       uint32
		Handle, Offset                                     uint64
		Count                                              uint32
	}
	reply struct {
		XID, Type, ReplyStatus              uint32
		Verifier                            [2]uint32
		AcceptStatus, Status, HasAttributes uint32
		Count, EOF, Length                  uint32 // in NFS the attributes stand before them
		_                                   uint32 // whole words
	}
	attributes struct {
		Type, Mode, Links, UID, GID uint32
		Size, Used                  uint64
		Device                      [2]uint32
		FileSystem, FileID          uint64
		Access, Modify, Change      [2]uint32
	}
)

const (
	nfs, read, stale, ioError = 100003, 6, 70, 5
	handle                    = 0x7472_6170_657a_65 // of the file
)

var order, replySize = binary.BigEndian, binary.Size(reply{})

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		log.Fatal("usage: nfspage FILE")
	}
	if err := run(ctx, os.Args[1], os.Stdout); err != nil {
		log.Fatal("nfspage: ", err)
	}
}

// run serves a file on one NIC and reads it on another. It writes each page to out from where it has landed.
func run(ctx context.Context, name string, out io.Writer) (err error) {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	reader, server, closeAll, err := connect(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	served := make(chan error, 1)
	go func() { served <- serve(ctx, server, file) }()
	var page []byte
	for offset, end := uint64(0), false; !end && err == nil; offset += uint64(len(page)) {
		if page, end, err = readPage(ctx, reader, offset); err == nil {
			_, err = out.Write(page)
		}
	}
	return errors.Join(err, reader.Close(), <-served) // the server ends with the reader's channel
}

// connect opens two NICs and a pair of channels between them.
func connect(ctx context.Context) (reader, server *channel.Channel, closeAll func(), err error) {
	near, err := via.Open(ctx, "emu:?wire=mem:nfspage", via.Options{})
	if err != nil {
		return nil, nil, nil, err
	}
	far, err := via.Open(ctx, "emu:?wire=mem:nfspage", via.Options{})
	if err != nil {
		return nil, nil, nil, errors.Join(err, near.Close())
	}
	closeAll = func() { _, _ = near.Close(), far.Close() } // and their channels
	l, err := channel.Listen(far, "nfs", channel.Options{})
	if err == nil {
		reader, err = channel.Dial(ctx, near, l.Address().String(), channel.Options{})
	}
	if err == nil {
		server, err = l.Accept(ctx)
	}
	if err != nil {
		closeAll()
	}
	return reader, server, closeAll, err
}

// readPage returns the page at an offset where it has landed, which holds until the next call, and whether the
// file ends there. It trusts no server.
func readPage(ctx context.Context, c *channel.Channel, offset uint64) (data []byte, end bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ask := request{XID: uint32(offset >> 12), RPCVersion: 2, Program: nfs, Version: 3, Procedure: read, HandleLength: 8,
		Handle: handle, Offset: offset, Count: uint32(c.RecvPages().PageSize())}
	if err := errors.Join(c.AllowPlaced(replySize), c.Send(channel.High, 0, c.SendPages().Put(0, encode(ask)))); err != nil {
		return nil, false, err
	}
	m, err := c.Wait(ctx)
	if err != nil {
		return nil, false, err
	}
	head, page, _, err := c.Placed(m, replySize)
	if err != nil {
		return nil, false, err
	}
	var r reply
	_, _ = binary.Decode(head, order, &r) // it is as long
	switch {
	case r.XID != ask.XID || r.Type != 1 || r.ReplyStatus != 0 || r.AcceptStatus != 0:
		return nil, false, errors.New("the answer to something else")
	case r.Status != 0:
		return nil, false, fmt.Errorf("READ at %d: NFS status %d", offset, r.Status)
	case r.Count != r.Length || int(r.Length) > len(page) || r.Length == 0 && r.EOF == 0:
		return nil, false, fmt.Errorf("%d bytes that are said to be %d", r.Length, r.Count)
	}
	return page[:r.Length], r.EOF != 0, nil
}

// serve answers requests until the reader closes its channel.
func serve(ctx context.Context, c *channel.Channel, file *os.File) (err error) {
	defer func() { err = errors.Join(err, c.Close()) }()
	for {
		m, err := c.Wait(ctx)
		if errors.Is(err, via.ErrDisconnected) {
			return nil
		}
		if err = errors.Join(err, m.Err); err != nil {
			return err
		}
		b := make([]byte, m.Length)
		var q request
		if _, err := binary.Decode(b[:c.Read(m, b)], order, &q); err != nil {
			return err
		}
		if err := errors.Join(c.Release(m), c.Flush(ctx)); err != nil { // the last reply may still be read from the pages
			return err
		}
		r, about := answer(q, file, c.SendPages().Page(1))
		if err := c.SendPlaced(channel.Low, encode(r), encode(about)); err != nil {
			return err
		}
	}
}

// answer reads the bytes that a request asks for into a page, where the channel sends them from.
func answer(q request, file *os.File, page []byte) (r reply, about attributes) {
	r = reply{XID: q.XID, Type: 1}
	info, err := file.Stat()
	if err != nil || q.Program != nfs || q.Version != 3 || q.Procedure != read || q.Handle != handle {
		r.Status = stale
		return r, about
	}
	n, err := file.ReadAt(page[:min(int(q.Count), len(page))], int64(q.Offset))
	if err == io.EOF {
		r.EOF = 1
	} else if err != nil {
		r.Status = ioError
	}
	clear(page[n:])
	r.HasAttributes, r.Count, r.Length = 1, uint32(n), uint32(n)
	return r, attributes{Type: 1, Mode: uint32(info.Mode().Perm()), Links: 1, Size: uint64(info.Size()), Used: uint64(info.Size())}
}

func encode(v any) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, order, v) // a buffer takes everything
	return b.Bytes()
}
