package firmware

import (
	"strings"
	"unicode"

	"github.com/cilium/ebpf/asm"
)

// line is a line of a program's source, as the instruction that it starts carries
// it (asm.Instruction.Source). It is printable, whatever the image holds.
type line struct {
	file, text string
	number     uint32
}

// FileName is the source's path as the compiler was given it.
func (l line) FileName() string { return l.file }

// LineNumber counts from 1.
func (l line) LineNumber() uint32 { return l.number }

// String returns the text of the line.
func (l line) String() string { return l.text }

// clean replaces an instruction's source, which a file may have made, with one
// that is printable: a line, or a comment if no file is named.
func clean(ins asm.Instruction) asm.Instruction {
	source := ins.Source()
	if source == nil {
		return ins
	}
	text := printable(strings.TrimSpace(source.String()))
	at, ok := source.(interface {
		FileName() string
		LineNumber() uint32
	})
	switch {
	case text == "":
		return ins.WithSource(nil)
	case !ok || at.FileName() == "":
		return ins.WithSource(asm.Comment(text))
	}
	return ins.WithSource(line{file: printable(at.FileName()), text: text, number: at.LineNumber()})
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
