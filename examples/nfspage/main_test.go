package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/examples/nfspage/nfs"
)

func Example() {
	if err := run(context.Background(), nil, os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// reading by NFS, in pages of 4096 bytes
	// 1049810 bytes in 257 pages are as in the file; 257 landed aligned to a page
	// 257 replies, as the server made them: true
	// bytes that the reader's NIC has stored: 1097904
	// bytes that package channel has copied: 69906 of requests, headers and attributes, 0 of the file
}

// asProgram has the test binary be the program.
const asProgram = "NFSPAGE_TEST_FILE"

func TestMain(m *testing.M) {
	if name := os.Getenv(asProgram); name != "" {
		os.Args = []string{"nfspage", name}
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// write makes a file of so many bytes.
func write(t *testing.T, size int64) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "file")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	// Not more than this is written; what is behind are zeros.
	_, err = f.Write(bytes.Repeat([]byte("trapeze "), int(min(size, 1<<20))/8))
	if err := errors.Join(err, f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestAnyLength: a file of any length is read whole, the short last page too.
func TestAnyLength(t *testing.T) {
	for _, size := range []int64{0, 1, 3, 4095, 4096, 4097, 3 * 4096, 50000} {
		var out strings.Builder
		if err := run(t.Context(), []string{write(t, size)}, &out); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		pages := (size + 4095) / 4096
		for _, want := range []string{
			fmt.Sprintf("\n%d bytes in %d pages are as in the file; %d landed aligned to a page\n", size, pages, pages),
			"as the server made them: true\n", ", 0 of the file\n",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%d bytes: no %q in\n%s", size, want, out.String())
			}
		}
	}
}

func TestNoFile(t *testing.T) {
	if err := run(t.Context(), []string{filepath.Join(t.TempDir(), "none")}, io.Discard); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := run(t.Context(), []string{t.TempDir()}, io.Discard); err == nil || !strings.Contains(err.Error(), "NFS status 5") {
		t.Errorf("a directory: %v", err)
	}
	if err := run(t.Context(), []string{"a", "b"}, io.Discard); err == nil {
		t.Error("two files")
	}
}

// TestInterrupt: the program ends at once, and says so.
func TestInterrupt(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, os.Args[0])
		c.Env = append(os.Environ(), asProgram+"="+write(t, 1<<38))
		var complaints strings.Builder
		c.Stderr = &complaints
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Error(err)
		}
		if err := c.Process.Signal(sig); err != nil {
			t.Error(err)
		}
		err = c.Wait()
		if c.ProcessState.ExitCode() != 1 || !strings.Contains(complaints.String(), "interrupted after ") {
			t.Errorf("%v: %v, %s", sig, err, complaints.String())
		}
	}
}

// pair opens a pair of channels as run does.
func pair(t *testing.T) (near, far *channel.Channel) {
	t.Helper()
	nics, err := openNICs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l, err := channel.Listen(nics[1], "nfs", channel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if near, err = dial(t.Context(), nics[0], l.Address().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(near.Close(), far.Close(), l.Close(), nics[0].Close(), nics[1].Close()); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return near, far
}

// TestStaleHandle: what the server refuses comes as it is, and the reader says why.
func TestStaleHandle(t *testing.T) {
	f, err := open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	near, far := pair(t)
	served := make(chan error, 1)
	go func() { served <- newServer(far, f).serve(t.Context()) }()
	if _, _, err := newReader(near, []byte("another")).read(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "NFS status 70") {
		t.Error(err)
	}
	if err := errors.Join(near.Close(), <-served); err != nil {
		t.Error(err)
	}
}

// TestBadReplies: the reader trusts no server.
func TestBadReplies(t *testing.T) {
	near, far := pair(t)
	r := newReader(near, []byte("handle"))
	reply := func(count, length, xid uint32) []byte {
		p, err := packet(false, int(length), replyHead{XID: xid, MessageType: rpcReply}, readResult{Count: count, Length: length})
		if err != nil {
			t.Fatal(err)
		}
		return append(p, "the data"[:length]...)
	}
	placed := func(whole []byte, spoil func(*nfs.Parts)) func() error {
		return func() error {
			var p nfs.Parts
			if err := nfs.Reorder(nfs.ReadReply, whole, &p); err != nil {
				return err
			}
			copy(far.SendPages().Page(1), p.Data)
			spoil(&p)
			return far.SendPlaced(channel.Low, p.Fixed, p.Attributes)
		}
	}
	good := func(*nfs.Parts) {}
	for _, c := range []struct {
		name, want string
		send       func() error
	}{
		{"three words", "a reply of 24 bytes", func() error { return far.Send(channel.Low, 0, 3) }},
		{"another request's", "a reply to request 77", placed(reply(8, 8, 77), good)},
		{"no data, and not the end", "no data, and no end", placed(reply(0, 0, 3), good)},
		{"more than a page", "5000 bytes of data", placed(reply(8, 8, 4), func(p *nfs.Parts) {
			copy(p.Fixed[headersSize+32:], []byte{0, 0, 0x13, 0x88})
			copy(p.Fixed[headersSize+40:], []byte{0, 0, 0x13, 0x88})
		})},
		{"no reply", "message type", placed(reply(8, 8, 5), func(p *nfs.Parts) { p.Fixed[headersSize+7] = 0 })},
		{"another packet's length", "IP total length", placed(reply(8, 8, 6), func(p *nfs.Parts) { p.Fixed[3]++ })},
	} {
		answered := make(chan error, 1)
		go func() {
			m, err := far.Wait(t.Context())
			if err == nil {
				err = errors.Join(far.Release(m), c.send(), far.Flush(t.Context()))
			}
			answered <- err
		}()
		_, _, err := r.read(t.Context(), 0)
		if e := <-answered; e != nil {
			t.Fatalf("%s: %v", c.name, e)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
