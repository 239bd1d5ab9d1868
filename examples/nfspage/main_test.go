package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write makes a file of so many bytes.
func write(t *testing.T, size int) (name string, content []byte) {
	t.Helper()
	name, content = filepath.Join(t.TempDir(), "file"), bytes.Repeat([]byte("trapeze! "), 1+size/9)[:size]
	must.OK(t, os.WriteFile(name, content, 0o600))
	return name, content
}

// TestAnyLength: a file of any length is read whole, the short last page too.
func TestAnyLength(t *testing.T) {
	for _, size := range []int{0, 1, 3, 4095, 4096, 4097, 3 * 4096, 50000} {
		name, want := write(t, size)
		var out bytes.Buffer
		if err := run(t.Context(), name, &out); err != nil || !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%d bytes: %v, and %d came", size, err, out.Len())
		}
	}
}

func TestNoFile(t *testing.T) {
	should.Fail(t, run(t.Context(), filepath.Join(t.TempDir(), "none"), io.Discard), fs.ErrNotExist)
	should.Say(t, run(t.Context(), t.TempDir(), io.Discard), "NFS status 5", "a directory")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	name, _ := write(t, 10)
	if err := run(ctx, name, io.Discard); err == nil {
		t.Error("it was interrupted, and says nothing")
	}
}

// TestReplies: a page lands aligned, where the reader takes it without a copy, and the reader trusts no server.
func TestReplies(t *testing.T) {
	near, far, closeAll, err := connect(t.Context())
	must.OK(t, err)
	defer closeAll()
	copy(far.SendPages().Page(1), "the data")
	good := reply{Type: 1, HasAttributes: 1, Count: 8, Length: 8, EOF: 1}
	for _, c := range []struct {
		wrong string
		spoil func(*reply)
	}{
		{"", func(*reply) {}},
		{"something else", func(r *reply) { r.XID = 77 }},
		{"something else", func(r *reply) { r.Type = 0 }},
		{"NFS status 70", func(r *reply) { r.Status = stale }},
		{"0 bytes", func(r *reply) { r.Count, r.Length, r.EOF = 0, 0, 0 }},
		{"5000 bytes", func(r *reply) { r.Count, r.Length = 5000, 5000 }},
		{"8 bytes that are said to be 9", func(r *reply) { r.Count = 9 }},
	} {
		r := good
		c.spoil(&r)
		answered := make(chan error, 1)
		go func() {
			m, err := far.Wait(t.Context())
			answered <- errors.Join(err, far.Release(m), far.SendPlaced(channel.Low, encode(r), encode(attributes{})), far.Flush(t.Context()))
		}()
		data, end, err := readPage(t.Context(), near, 0)
		if e := <-answered; e != nil {
			t.Fatal(e)
		}
		switch {
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: %v", c.wrong, err)
		case c.wrong == "" && (err != nil || !end || string(data) != "the data" || &data[0] != &near.RecvPages().Page(1)[0]):
			t.Errorf("%q, %v, %v", data, end, err)
		}
	}
	should.Be(t, near.RecvPages().Stats().Copied, 0, "bytes were copied")
	go func() { _ = far.Send(channel.Low, 0, 3) }()
	if _, _, err := readPage(t.Context(), near, 4096); err != channel.ErrLength {
		t.Errorf("three words: %v", err)
	}
}
