package qtest

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxLine is the longest line of QEMU's that makes sense: the answer to a read of all
// of configuration space, in hexadecimal.
const maxLine = len("OK 0x") + 2*4096 + len("\n")

// ErrGarbage: QEMU, or whatever speaks in its place, has sent a line that is none of
// the qtest protocol's, or not an answer to what was asked.
var ErrGarbage = errors.New("not the qtest protocol")

// AnswerError says that QEMU refuses a request.
type AnswerError struct {
	// Answer is QEMU's line without its first word, FAIL or ERR.
	Answer string
}

func (e *AnswerError) Error() string { return "QEMU refuses the request: " + e.Answer }

// parseLine reads a line of QEMU's, without its end (QEMU, system/qtest.c, "QTest
// Protocol"). What follows OK is returned; a refusal is an *AnswerError. An interrupt
// that QEMU tells of unasked is no answer.
func parseLine(line []byte) (value string, answer bool, err error) {
	word, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\r"), " ")
	switch word {
	case "OK":
		return rest, true, nil
	case "FAIL", "ERR":
		return "", true, &AnswerError{rest}
	case "IRQ":
		way, number, _ := strings.Cut(rest, " ")
		if _, err := strconv.ParseUint(number, 10, 16); err == nil && (way == "raise" || way == "lower") {
			return "", false, nil
		}
	}
	return "", false, fmt.Errorf("%w: %.80q", ErrGarbage, line)
}

// parseNumber reads the answer to a read of 1 to 8 bytes. Some answers have more
// digits than the access, all of them zero.
func parseNumber(value string, width int) (uint64, error) {
	digits, ok := strings.CutPrefix(value, "0x")
	n, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil || width < 8 && n>>(8*width) != 0 {
		return 0, fmt.Errorf("%w: %.80q is no number of %d bytes", ErrGarbage, value, width)
	}
	return n, nil
}

// parseBytes reads the answer to a read of len(p) bytes into p.
func parseBytes(value string, p []byte) error {
	digits, ok := strings.CutPrefix(value, "0x")
	if ok && len(digits) == 2*len(p) {
		if _, err := hex.Decode(p, []byte(digits)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %.80q is not %d bytes", ErrGarbage, value, len(p))
}
