// Package capture writes files of frames: pcapng, with times in nanoseconds. The format itself is
// gopacket's.
package capture

import (
	"errors"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/outfile"
)

// Output are the flags of a command that says which file frames go to.
type Output struct {
	// Path is empty for no file, - for stdout.
	Path    string `flag:"output,o" help:"pcapng file to write frames to; - is stdout"`
	Snaplen int    `flag:"snaplen" range:"1..65535" help:"bytes of each frame that are written, 1 to 65535 (default all)"`
	cmdtable.Force
}

// Check refuses what cannot be, before anything is done. With json stdout is taken.
func (o *Output) Check(json bool) error {
	switch {
	case o.Path == "" && (o.Snaplen != 0 || o.Force.Force):
		return option.Errorf("--snaplen and --force are about the file of --output, and there is none")
	case o.Path == "-" && json:
		return option.Errorf("--output - and --json cannot both have stdout")
	case o.Path == "" || o.Path == "-":
		return nil
	}
	return outfile.Explain("--output", outfile.Check(o.Path, o.Force.Force))
}

// File is one that is written, by one goroutine at a time. It has its name once Finish has succeeded.
type File struct {
	frames          *pcapgo.NgWriter
	snaplen         int
	commit, discard func() error
}

// Create begins the file, whose frames come from the NIC or port at an address and have the fields that a filter names.
// Check has accepted it.
func (o *Output) Create(stdout io.Writer, address, filter string) (*File, error) {
	f := &File{snaplen: o.Snaplen, commit: func() error { return nil }, discard: func() error { return nil }}
	w := stdout
	if o.Path != "-" {
		// A user who may not look at the NIC may not see its frames either.
		file, err := outfile.Create(o.Path, 0o600, o.Force.Force)
		if err != nil {
			return nil, outfile.Explain("--output", err)
		}
		w, f.commit, f.discard = file, file.Commit, file.Discard
	}
	options := pcapgo.DefaultNgWriterOptions
	options.SectionInfo.Application = "trapeze"
	var err error
	if f.frames, err = pcapgo.NewNgWriterInterface(w, pcapgo.NgInterface{Name: address, Filter: filter, LinkType: layers.LinkTypeEthernet,
		SnapLength: uint32(o.Snaplen), TimestampResolution: 9, OS: options.SectionInfo.OS}, options); err != nil {
		return nil, errors.Join(outfile.Explain("--output", err), f.discard())
	}
	return f, nil
}

// Write appends the bytes that were kept of a frame of some length, which came at a time. Its errors are those of the file.
func (f *File) Write(at time.Time, frame []byte, length int) error {
	if f.snaplen > 0 {
		frame = frame[:min(len(frame), f.snaplen)]
	}
	return f.frames.WritePacket(gopacket.CaptureInfo{Timestamp: at, Length: length, CaptureLength: len(frame)}, frame)
}

// Flush writes what is still in memory.
func (f *File) Flush() error { return f.frames.Flush() }

// Finish writes what is still in memory, and gives the file its name. If that fails, or written
// says that writing has failed, nothing is left of it.
func (f *File) Finish(written error) error {
	if written == nil {
		written = f.Flush()
	}
	if written == nil {
		written = f.commit()
	}
	return errors.Join(outfile.Explain("--output", written), f.discard())
}
