package shell

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trapeze-nic/trapeze/internal/option"
)

// refuseUnknown has every command say what it takes when it is given something else. Those
// that others stand below say which of these was perhaps meant.
func refuseUnknown(c *cobra.Command) {
	for _, sub := range c.Commands() {
		refuseUnknown(sub)
	}
	if !c.HasSubCommands() {
		if number := c.Args; number != nil {
			c.Args = func(c *cobra.Command, args []string) error {
				if number(c, args) != nil {
					return wrongArguments(c, args)
				}
				return nil
			}
		}
		return
	}
	c.SuggestionsMinimumDistance = 2 // as cobra has it for commands that run nothing
	c.Args = noSuchCommand
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		// What stands behind a command that is not known are its flags.
		if c.HasSubCommands() && c.Flags().NArg() > 0 {
			return noSuchCommand(c, c.Flags().Args())
		}
		return badFlag(err)
	})
}

// requiredFlags are the flags in the Use of a command.
var requiredFlags = regexp.MustCompile(`--\S+ \S+ ?`)

// wrongArguments refuses arguments that are too many or too few.
func wrongArguments(c *cobra.Command, args []string) error {
	wanted, given := "no arguments", "no arguments"
	_, names, _ := strings.Cut(c.Use, " ")
	if names = requiredFlags.ReplaceAllString(names, ""); names != "" {
		wanted = names
	}
	if len(args) > 0 {
		given = fmt.Sprintf("%q", args)
		given = given[1 : len(given)-1]
	}
	return option.Errorf("%s takes %s, and was given %s", c.CommandPath(), wanted, given)
}

// badFlag says what a flag takes in our words where the flags' library has its own.
func badFlag(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	var allowed string
	switch kind := bad.GetFlag().Value.Type(); kind {
	case "int", "int64", "uint", "uint64":
		allowed = "a whole number"
		if strings.HasPrefix(kind, "u") {
			allowed += ", 0 or more"
		}
	case "uint8", "uint16", "uint32":
		bits, _ := strconv.Atoi(kind[len("uint"):])
		allowed = fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<bits-1)
	case "float64":
		allowed = "a number"
	case "duration":
		allowed = "a time such as 200ms, 1.5s or 2m"
	case "bool":
		allowed = "true or false"
	case "intSlice":
		allowed = "whole numbers, with commas between them"
	case "float64Slice":
		allowed = "numbers, with commas between them: " + bad.GetFlag().Usage
	case "stringSlice":
		allowed = "words, with commas between them"
	case "bytes":
		allowed = "a number of bytes such as 64, 4K or 1M"
	default:
		return err
	}
	if errors.Is(err, strconv.ErrRange) && strings.Contains(allowed, "whole") {
		allowed += ", of at most 64 bits"
	}
	return &option.Error{Option: "--" + bad.GetFlag().Name, Value: bad.GetValue(), Allowed: allowed}
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
