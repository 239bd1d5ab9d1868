package capture

import (
	"errors"
	"fmt"
	"io"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/outfile"
)

// Output are the flags of a command that says which file frames go to.
type Output struct {
	// Path is empty for no file, - for stdout.
	Path    string `flag:"output,o" help:"pcapng file to write frames to; - is stdout"`
	Snaplen int    `flag:"snaplen" help:"bytes of each frame that are written, 1 to 65535 (default all)"`
	cmdtable.Force
}

// Check refuses what cannot be, before anything is done. With json stdout is taken.
func (o *Output) Check(json bool) error {
	switch {
	case o.Snaplen < 0 || o.Snaplen > 1<<16-1:
		return &option.Error{Option: "--snaplen", Value: fmt.Sprint(o.Snaplen), Allowed: "1 to 65535"}
	case o.Path == "" && (o.Snaplen != 0 || o.Force.Force):
		return option.Errorf("--snaplen and --force are about the file of --output, and there is none")
	case o.Path == "-" && json:
		return option.Errorf("--output - and --json cannot both have stdout")
	case o.Path == "" || o.Path == "-":
		return nil
	}
	return outfile.Explain("--output", outfile.Check(o.Path, o.Force.Force))
}

// File is one that is written. It has its name once Finish has succeeded.
type File struct {
	*Writer
	commit, discard func() error
}

// Create begins the file, whose frames come from s. Check has accepted it.
func (o *Output) Create(stdout io.Writer, s Source) (*File, error) {
	f := &File{commit: func() error { return nil }, discard: func() error { return nil }}
	w := stdout
	if o.Path != "-" {
		// Who may not look at the NIC may not see its frames either.
		file, err := outfile.Create(o.Path, 0o600, o.Force.Force)
		if err != nil {
			return nil, outfile.Explain("--output", err)
		}
		w, f.commit, f.discard = file, file.Commit, file.Discard
	}
	var err error
	if f.Writer, err = NewWriter(w, o.Snaplen, s); err != nil {
		return nil, errors.Join(outfile.Explain("--output", err), f.discard())
	}
	return f, nil
}

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
