package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
)

// compare reads the file to its end and holds each page, where it has landed, against it.
func compare(ctx context.Context, r *reader, file *os.File, out io.Writer) (total int64, err error) {
	size := r.channel.RecvPages().PageSize()
	if _, err := fmt.Fprintf(out, "reading by NFS, in pages of %d bytes\n", size); err != nil {
		return 0, err
	}
	want := make([]byte, size)
	for pages, aligned := 0, 0; ; {
		page, end, err := r.read(ctx, uint64(total))
		if err != nil {
			return total, err
		}
		n, err := file.ReadAt(want[:len(page)], total)
		if err != nil && err != io.EOF || !bytes.Equal(page, want[:n]) {
			return total, errors.Join(err, fmt.Errorf("the page at %d is not as in the file, or that has changed", total))
		}
		total += int64(n)
		if n > 0 {
			pages++
		}
		if n > 0 && reflect.ValueOf(page).Pointer()%uintptr(size) == 0 {
			aligned++
		}
		if end {
			_, err = fmt.Fprintf(out, "%d bytes in %d pages are as in the file; %d landed aligned to a page\n", total, pages, aligned)
			return total, err
		}
	}
}

// report prints what NIC and package channel have counted.
func report(out io.Writer, r *reader, s *server, stored uint64) error {
	copied := r.channel.SendPages().Stats().Copied + r.channel.RecvPages().Stats().Copied + s.channel.SendPages().Stats().Copied + s.channel.RecvPages().Stats().Copied
	_, err := fmt.Fprintf(out, "%d replies, as the server made them: %t\n"+
		"bytes that the reader's NIC has stored: %d\n"+
		"bytes that package channel has copied: %d of requests, headers and attributes, %d of the file\n",
		r.replies, bytes.Equal(r.sum.Sum(nil), s.sum.Sum(nil)), stored, r.around+s.around, copied-r.around-s.around)
	return err
}
