package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trapeze-nic/trapeze/internal/option"
)

// refuseUnknown has every command that others stand below say what it could have
// been that it does not know.
func (p *program) refuseUnknown(c *cobra.Command) {
	for _, sub := range c.Commands() {
		p.refuseUnknown(sub)
	}
	if !c.HasSubCommands() {
		return
	}
	c.SuggestionsMinimumDistance = 2 // as cobra has it for commands that run nothing
	c.Args = noSuchCommand
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		// What stands behind a command that is not known are its flags.
		if c.HasSubCommands() && c.Flags().NArg() > 0 {
			return noSuchCommand(c, c.Flags().Args())
		}
		return err
	})
}

// noSuchCommand refuses arguments.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	s := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
	if like := c.SuggestionsFor(args[0]); len(like) > 0 {
		s += "; did you mean " + strings.Join(like, " or ") + "?"
	}
	return option.Errorf("%s", s)
}

// checkEmpty refuses flags and arguments that are given and empty, as by a script
// whose variable is not set: what is done without them is not what was meant.
func checkEmpty(c *cobra.Command, args []string) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		text, slice := f.Value.String(), false
		if list, ok := f.Value.(pflag.SliceValue); ok {
			text, slice = strings.Join(list.GetSlice(), ""), true
		}
		if err == nil && text == "" && (slice || f.Value.Type() == "string") {
			err = &option.Error{Option: "a value for --" + f.Name, Allowed: f.Usage}
		}
	})
	for i, a := range args {
		if err == nil && a == "" {
			err = &option.Error{Option: fmt.Sprintf("argument %d", i+1), Allowed: "it is empty in " + c.UseLine()}
		}
	}
	return err
}
