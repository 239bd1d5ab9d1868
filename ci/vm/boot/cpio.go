package main

import (
	"fmt"
	"io"
	"os"
)

// cpioWriter writes an archive in the "newc" format, the one that the kernel
// unpacks (Documentation/driver-api/early-userspace/buffer-format.rst). It
// remembers the first error.
type cpioWriter struct {
	w   io.Writer
	at  int
	ino int
	err error
}

func (c *cpioWriter) write(b []byte) {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(b)
	c.at += n
	c.err = err
}

// pad goes on to a multiple of four bytes.
func (c *cpioWriter) pad() { c.write(make([]byte, -c.at&3)) }

// entry adds a file, folder or link, whose content is its target. Parents come
// before what is in them.
func (c *cpioWriter) entry(name string, mode uint32, content []byte) {
	c.ino++
	c.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.ino, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0))
	c.write(append([]byte(name), 0))
	c.pad()
	c.write(content)
	c.pad()
}

// Types of entries (stat(2)).
const (
	typeFolder = 0o040000
	typeFile   = 0o100000
	typeLink   = 0o120000
)

func (c *cpioWriter) folder(name string) { c.entry(name, typeFolder|0o755, nil) }

func (c *cpioWriter) link(name, target string) { c.entry(name, typeLink|0o777, []byte(target)) }

func (c *cpioWriter) program(name string, content []byte) {
	c.entry(name, typeFile|0o755, content)
}

// copy adds a program or library from this machine.
func (c *cpioWriter) copy(name, from string) {
	b, err := os.ReadFile(from)
	if err != nil && c.err == nil {
		c.err = err
	}
	c.program(name, b)
}

// close ends the archive.
func (c *cpioWriter) close() error {
	c.entry("TRAILER!!!", 0, nil)
	return c.err
}
